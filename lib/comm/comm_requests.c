/* What MPI says: return codes as errors, requests that are done, and the staging they go through. */
#include "comm/comm_impl.h"

#include "comm/comm_workspace.h"
#include "common/mem.h"

#include <stdlib.h>

int comm_check(int rc, const char *what, struct err *err) {
    if (rc == MPI_SUCCESS)
        return 0;
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (MPI_Error_string(rc, text, &n) != MPI_SUCCESS)
        return err_system(err, "%s: MPI error %d", what, rc);
    return err_system(err, "%s: %.*s", what, n, text);
}

bool requests_stage(struct mpi_group *m) {
    if (m->stage)
        return true;
    m->seg = comm_workspace_segment(m->n);
    m->req = mem_array((size_t)(4 * m->n), sizeof(MPI_Request));
    for (int i = 0; i < 4 * m->n; i++)
        m->req[i] = MPI_REQUEST_NULL;
    m->stage = calloc((size_t)(2 * m->n * m->seg), sizeof *m->stage);
    m->rc = MPI_ERR_NO_MEM;
    return m->stage != NULL;
}

enum step requests_test(struct mpi_group *m, int first, int n) {
    int all = 0, rc = MPI_Testall(n, m->req + first, &all, MPI_STATUSES_IGNORE);
    if (rc != MPI_SUCCESS) {
        m->rc = rc;
        return STEP_FAILED;
    }
    return all ? STEP_MORE : STEP_WAIT;
}
