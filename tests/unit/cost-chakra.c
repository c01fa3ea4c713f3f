/* Chakra traces: what stands in the files is the program. Nodes are counted against the schedule's
 * instructions, each waits for nodes before it alone, every send has its receive with the same tag and size,
 * and all ranks of a group have the same collectives in the same order. Two rules are others': feeders follow
 * data alone, so the order is among it, and group 0 is all ranks for ASTRA-sim. */
#include "cost/chakra.h"

#include "common/file.h"
#include "common/wire.h"
#include "program.h"

#include <unistd.h>

enum { SEND = 5, RECEIVE = 6, COLLECTIVE = 7 };

struct node {
    uint64_t id, type;
    int64_t src, dst, tag, size, kind;
    char group[16];
    bool waits; /* all that it waits for stands before it, and its data has all of it */
};

struct end {
    int64_t key[4];
    int left; /* sends less receives */
};

struct seen {
    ARR(struct end) ends;
    int64_t nodes, collectives, messages, bytes;
    uint64_t order[64]; /* of a group's collectives, by rank: a hash */
    bool good;
};

static void read_attribute(struct wire in, struct node *n) {
    struct wire_field f;
    char name[32] = "", text[16] = "";
    int64_t value = 0;
    while (wire_next(&in, &f, NULL) > 0) {
        int size = (int)(f.bytes.end - f.bytes.at);
        if (f.number == 1)
            snprintf(name, sizeof name, "%.*s", size, (const char *)f.bytes.at);
        else if (f.number == 29)
            snprintf(text, sizeof text, "%.*s", size, (const char *)f.bytes.at);
        else
            value = (int64_t)f.value;
    }
    int64_t *to = !strcmp(name, "comm_src")    ? &n->src
                  : !strcmp(name, "comm_dst")  ? &n->dst
                  : !strcmp(name, "comm_tag")  ? &n->tag
                  : !strcmp(name, "comm_size") ? &n->size
                  : !strcmp(name, "comm_type") ? &n->kind
                                               : &value;
    *to = value;
    if (!strcmp(name, "pg_name"))
        snprintf(n->group, sizeof n->group, "%s", text);
}

static struct node read_node(struct wire in) {
    struct wire_field f;
    struct node n = {.waits = true, .kind = -1};
    uint64_t order[4], dep; /* at most what ran before, and the last of its kind */
    int n_order = 0, have = 0;
    while (wire_next(&in, &f, NULL) > 0) {
        uint8_t one[10];
        if (f.number == 1)
            n.id = f.value;
        if (f.number == 3)
            n.type = f.value;
        struct wire rest = wire_numbers(&f, one);
        while ((f.number == 4 || f.number == 5) && wire_number(&rest, WIRE_VARINT, &dep)) {
            n.waits &= dep > 0 && dep < n.id;
            if (f.number == 4 && n_order < 4)
                order[n_order++] = dep;
            for (int k = 0; k < n_order && f.number == 5; k++)
                have += order[k] == dep;
        }
        if (f.number == 10)
            read_attribute(f.bytes, &n);
    }
    n.waits &= have == n_order;
    return n;
}

static void add_end(struct seen *s, const struct node *n) {
    int64_t key[] = {n->src, n->dst, n->tag, n->size};
    int64_t i = 0;
    while (i < s->ends.n && memcmp(s->ends.p[i].key, key, sizeof key) != 0)
        i++;
    if (i == s->ends.n) {
        struct end e = {.left = 0};
        memcpy(e.key, key, sizeof key);
        arr_push(&s->ends, e);
    }
    s->ends.p[i].left += n->type == SEND ? 1 : -1;
    s->messages += n->type == SEND;
    s->bytes += n->type == SEND ? n->size : 0;
}

static void read_rank(const char *dir, int rank, struct seen *s) {
    char path[128];
    size_t size;
    snprintf(path, sizeof path, "%s/weft.%d.et", dir, rank);
    char *bytes = file_read(path, 0, &size, NULL);
    struct wire in = {(uint8_t *)bytes, (uint8_t *)bytes + size};
    uint64_t length, last = 0;
    for (int i = 0; wire_number(&in, WIRE_VARINT, &length); i++) {
        struct node n = read_node((struct wire){in.at, in.at + length});
        in.at += length;
        if (!i) /* metadata */
            continue;
        s->good &= n.waits && n.id == last + 1 && n.type;
        last = n.id;
        s->nodes++;
        if (n.type == SEND || n.type == RECEIVE)
            add_end(s, &n);
        if (n.type == COLLECTIVE) {
            uint64_t *order = &s->order[atoi(n.group) % 8 * 8 + rank];
            *order = (*order * 31 + (uint64_t)n.size) * 31 + (uint64_t)n.kind + 1;
            s->collectives++;
        }
    }
    free(bytes);
}

/* What the schedule has: each wait is no node, each transfer as many as it has messages. */
static int64_t count_nodes(const struct program *g, int rank, int64_t *collectives) {
    struct group_schedule s = schedule_of_group(g->plan, program_group_of_rank(g, rank),
                                                plan_micro_batches(g->plan));
    int64_t n = 0;
    for (int64_t k = 0; k < schedule_actions(&s); k++) {
        struct action a = schedule_action(&s, k);
        FOR_SEGMENT(&g->stages[a.stage], a.segment, i) {
            struct piece *pieces;
            int messages = 0;
            if (i->code == I_send || i->code == I_recv) {
                messages = transfer_pieces(g, &g->transfers[i->transfer], rank,
                                           i->code == I_send, &pieces);
                free(pieces);
            }
            *collectives += opcode_key(i->code) == KEY_COMM;
            *collectives -= i->code == I_shift; /* two messages */
            n += i->code == I_shift;
            n += i->code == I_wait                        ? 0
                 : i->code == I_send || i->code == I_recv ? messages
                                                          : 1;
        }
    }
    return n;
}

static void check(const char *plan) {
    char dir[] = "/tmp/weft-chakra-XXXXXX", path[128];
    struct compiled c = compile(plan);
    struct cost cost;
    struct cluster cluster = cluster_single_node(c.plan->devices);
    struct chakra_counts n;
    struct err err = {0};
    struct seen s = {.good = true};
    cost_init(&cost, NULL, &cluster);
    if (!mkdtemp(dir) ||
        !ok(chakra_write(dir, c.g, &cost, &n, &err) == 0, "written: %s", err.msg))
        exit(done_testing());
    int64_t nodes = 0, collectives = 0;
    for (int r = 0; r < c.plan->devices; r++) {
        read_rank(dir, r, &s);
        nodes += count_nodes(c.g, r, &collectives);
        snprintf(path, sizeof path, "%s/weft.%d.et", dir, r);
        unlink(path);
    }
    ok(s.nodes == nodes && n.nodes == nodes, "%lld nodes", (long long)nodes);
    ok(s.collectives == collectives && n.collectives == collectives, "%lld collectives",
       (long long)collectives);
    ok(s.good, "each has a number and a type, and waits for those before it");
    bool matched = s.messages == n.messages && s.bytes == n.message_bytes;
    for (int64_t i = 0; i < s.ends.n; i++)
        matched &= s.ends.p[i].left == 0;
    ok(matched, "%lld messages of %lld bytes, each with its receive", (long long)n.messages,
       (long long)n.message_bytes);
    snprintf(path, sizeof path, "%s/comm_groups.json", dir);
    json_t *groups = json_read(path, &err), *ranks, *rank;
    const char *name;
    bool same = json_object_size(groups) > 0;
    json_object_foreach(groups, name, ranks) {
        size_t i;
        int64_t first = json_integer_value(json_array_get(ranks, 0));
        json_array_foreach(ranks, i, rank) {
            const uint64_t *order = &s.order[atoi(name) % 8 * 8];
            same &= atoi(name) > 0;
            same &= order[json_integer_value(rank)] == order[first] && order[first];
        }
    }
    ok(same, "all ranks of the %zu groups have the same collectives",
       json_object_size(groups));
    json_decref(groups);
    unlink(path);
    rmdir(dir);
    arr_release(&s.ends);
    cost_release(&cost);
    compiled_release(&c);
}

int main(void) {
    check(
        "{'format': 'weft-plan/1', 'model': 'gpt:nano', "
        "'set': 'layers=4,hidden=96,heads=4,seq=64', 'batch': 16, 'micro_batch': 4, 'stages': "
        "[{'ops': ['wte', 'wpe', 'layer.0-1'], 'mesh': 'dp:2', 'layout': {'dp': 'batch'}}, "
        "{'mesh': 'tp:2', 'layout': {'tp': ['heads', 'ffn', 'vocab']}}]}");
    check("{'format': 'weft-plan/1', 'model': 'gpt:nano', "
          "'set': 'layers=2,hidden=96,heads=4,seq=64', 'batch': 8, 'stages': "
          "[{'mesh': 'dp:2 cp:2', 'layout': {'dp': 'batch', 'cp': 'seq'}}]}");
    /* A ring: keys go round beside the attention with those before. */
    check(
        "{'format': 'weft-plan/1', 'model': 'llama', 'set': "
        "'layers=2,hidden=64,heads=4,kv_heads=4,ffn=96,seq=128,vocab=256', 'batch': 8, 'stages': "
        "[{'mesh': 'dp:2 cp:2', 'ring': true, 'layout': {'dp': 'batch', 'cp': "
        "['seq', 'vocab', 'heads', 'kv_heads', 'ffn']}}]}");
    return done_testing();
}
