/* Meshes: coordinates, groups, text. */
#include "plan/mesh.h"
#include "tap.h"

#include <string.h>

static struct mesh parse(const char *text) {
    struct mesh mesh;
    struct err err = {0};
    if (mesh_parse(text, 1 << 20, &mesh, &err) < 0)
        ok(0, "%s: %s", text, err.msg);
    return mesh;
}

static void test_coordinates(void) {
    struct mesh mesh = parse("node:2 dp:3 tp:4");
    bool back = mesh_devices(&mesh) == 24;
    for (int r = 0; r < 24; r++) {
        int coord[MESH_MAX_AXES];
        mesh_coords(&mesh, r, coord);
        back &= mesh_rank(&mesh, coord) == r;
    }
    ok(back, "coordinates and back, for all of 24 devices");
    ok(mesh_axis_find(&mesh, "dp") == 1 && mesh_axis_find(&mesh, "d") == -1,
       "axes by name");
    struct mesh one = parse("");
    ok(one.n_axes == 0 && mesh_devices(&one) == 1, "no axes: one device");
}

/* Every group: members ascend, contain the device at its index, and are each other's group. */
static void test_groups(void) {
    struct mesh mesh = parse("a:2 b:3 c:1 d:2");
    bool good = true;
    for (unsigned axes = 0; axes < 16; axes++) {
        for (int r = 0; r < 12; r++) {
            int ranks[12], other[12], coord[MESH_MAX_AXES];
            int n = mesh_group(&mesh, axes, r, ranks);
            mesh_coords(&mesh, r, coord);
            good &= n == mesh_group_size(&mesh, axes) &&
                    ranks[mesh_group_index(&mesh, axes, coord)] == r;
            for (int i = 1; i < n; i++)
                good &= ranks[i] > ranks[i - 1];
            mesh_group(&mesh, axes, ranks[n - 1], other);
            good &= !memcmp(ranks, other, sizeof *ranks * (size_t)n);
        }
    }
    ok(good, "groups along all sets of axes, seen from all devices");
    struct mesh m = parse("node:2 dp:3 tp:4");
    ok(mesh_group_stride(&m, 4) == 1 && mesh_group_stride(&m, 2) == 4 &&
           mesh_group_stride(&m, 1) == 12 && mesh_group_stride(&m, 3) == 4,
       "the stride is that of the innermost axis");
}

static void refused(const char *text, const char *why) {
    struct mesh mesh;
    struct err err = {0};
    int rc = mesh_parse(text, 64, &mesh, &err);
    ok(rc < 0 && strstr(err.msg, why), "\"%s\" is refused: %s", text, err.msg);
}

static void test_text(void) {
    char buf[256];
    struct mesh mesh = parse("  dp:2   tp:1 ");
    mesh_format(&mesh, buf, sizeof buf);
    ok(!strcmp(buf, "dp:2 tp:1"), "axes of size 1 stay: %s", buf);
    refused("dp", "expected axes");
    refused("dp:", "expected axes");
    refused("dp: 2", "expected axes");
    refused("dp:+2", "expected axes");
    refused("dp:2x", "expected axes");
    refused(":2", "expected axes");
    refused("a2345678901234567:2", "expected axes");
    refused("dp:0", "positive");
    refused("dp:65", "at most 64");
    refused("dp:8 tp:9", "at most 64");
    refused("dp:99999999999999999999", "at most 64");
    refused("dp:2 dp:2", "twice");
    refused("a:1 b:1 c:1 d:1 e:1 f:1 g:1", "more than 6 axes");
}

int main(void) {
    test_coordinates();
    test_groups();
    test_text();
    return done_testing();
}
