/* weft-ckpt - the tensors of checkpoints, and their weights for other programs.
 *
 *     weft-ckpt list ckpt | jq -r .name
 *     weft-ckpt export -m gpt:gpt2 -o gpt2 ckpt
 *
 * No rank is needed for it: a checkpoint is read as files. */
#include "ckpt.h"

#include "common/opt.h"

#include <stdlib.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(const struct ckpt_options *o, const char *path, struct err *err);
} commands[] = {{"list", ckpt_list}, {"export", ckpt_export}};

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

static int run(struct ckpt_options *o, int argc, char **argv, struct err *err) {
    const struct opt options[] = {
        {'m', "model", OPT_STR, "MODEL",
         "export: the model that was trained (as the checkpoint says)", &o->model},
        {0, "set", OPT_LIST, "LIST", "export: its sizes changed: layers=4,hidden=64",
         &o->set},
        {'o', "output", OPT_STR, "NAME", "export: a new folder, or a file .safetensors",
         &o->output},
        {0},
    };
    const struct opt_tool tool = {"weft-ckpt", "list|export [options] PATH",
                                  "List the tensors of a checkpoint; export its weights.",
                                  options};
    int n = opt_parse(&tool, argc, argv, err);
    if (n < 0)
        return -1;
    if (n == 0)
        return err_usage(err, "expected a command: list or export");
    const struct command *c = find_command(argv[0]);
    if (!c)
        return err_usage(err, "expected a command: list or export, got \"%.40s\"", argv[0]);
    if (n != 2)
        return err_usage(err, "expected a command and one path, got %d operands", n);
    return c->run(o, argv[1], err);
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct ckpt_options o = {0};
    int rc = run(&o, argc, argv, &err);
    free(o.set);
    return rc == 0 ? EXIT_DONE : err_report(&err, "weft-ckpt");
}
