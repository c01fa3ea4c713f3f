#!/usr/bin/env python3
"""What JAX lowers a model to is that model for weft: same ops, same loss.

    $PYTHON scripts/compare-hlo.py [--bin BUILD/bin] [--fixtures DIR | --large LAYERS] [CASE...]

Needs JAX and numpy, and equinox for one case; nothing is downloaded: models are small and have random
weights. Each case is lowered by scripts/export-hlo.py; weft-import must make a model of it with the
parameters that it has, a scan over layers giving the ops of a list of them (that both are the shipped
families is tested by tests/unit/import-hlo.c). weft-run begins with the weights and takes three steps of
AdamW, and so does JAX: the losses must be the same. What weft has no op for must be refused with what the
case names.

With --fixtures only the modules of the tests are written; with --large a GPT of the sizes of GPT-2 and so
many layers, not in a scan, is lowered and imported once, and the time said. Ends with status 1 if losses
differ by more than 1e-5, relative.
"""
import argparse
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np

spec = importlib.util.spec_from_file_location("export_hlo", os.path.join(os.path.dirname(__file__), "export-hlo.py"))
spec.loader.exec_module(export_hlo := importlib.util.module_from_spec(spec))

LIMIT, BATCH, SEQ, VOCAB, STEPS, LR = 1e-5, 4, 24, 120, 3, 0.001
WIDTH, HEADS, LAYERS = 48, 4, 3
random = np.random.default_rng(1)


def normal(*shape):
    return jnp.asarray(random.normal(0, 0.08, shape).astype(np.float32))


def layers(make, scan):
    blocks = [make() for _ in range(LAYERS)]
    return jax.tree.map(lambda *a: jnp.stack(a), *blocks) if scan else blocks


def through(block, x, blocks, scan):
    if scan:
        return jax.lax.scan(lambda x, p: (block(x, p), None), x, blocks)[0]
    for p in blocks:
        x = block(x, p)
    return x


def layer_norm(x, p):
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * p["g"] + p["b"]


def fast_norm(x, p):
    """As flax has it: the variance from the mean of squares, the weight into its root."""
    mean, square = jnp.mean(x, -1, keepdims=True), jnp.mean(jax.lax.square(x), -1, keepdims=True)
    gain = jax.lax.rsqrt(jnp.maximum(0.0, square - jax.lax.square(mean)) + 1e-5) * p["g"]
    return (x - mean) * gain + p["b"]


def gpt_attention(x, p):
    b, s, h = x.shape
    q, k, v = (y.reshape(b, s, HEADS, h // HEADS).transpose(0, 2, 1, 3)
               for y in jnp.split(x @ p["qkv"] + p["qkv_b"], 3, -1))
    scores = q @ k.transpose(0, 1, 3, 2) / (h // HEADS) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((s, s), bool)), scores, -1e9)
    y = jax.nn.softmax(scores, -1) @ v
    return y.transpose(0, 2, 1, 3).reshape(b, s, h) @ p["o"] + p["o_b"]


def gpt(scan=False, norm=layer_norm, exact=False, take=False):
    def block(x, p):
        x = x + gpt_attention(norm(x, p["ln1"]), p["attn"])
        y = jax.nn.gelu(norm(x, p["ln2"]) @ p["mlp"]["up"] + p["mlp"]["up_b"], approximate=not exact)
        return x + (y @ p["mlp"]["down"] + p["mlp"]["down_b"])

    def forward(params, tokens):
        at = jnp.arange(tokens.shape[1])
        x = (jnp.take(params["wte"], tokens, axis=0) + jnp.take(params["wpe"], at, axis=0) if take
             else params["wte"][tokens] + params["wpe"][at])
        return norm(through(block, x, params["blocks"], scan), params["ln_f"]) @ params["wte"].T

    def make():
        ln = lambda: dict(g=normal(WIDTH), b=normal(WIDTH))
        return dict(ln1=ln(), ln2=ln(),
                    attn=dict(qkv=normal(WIDTH, 3 * WIDTH), qkv_b=normal(3 * WIDTH), o=normal(WIDTH, WIDTH),
                              o_b=normal(WIDTH)),
                    mlp=dict(up=normal(WIDTH, 4 * WIDTH), up_b=normal(4 * WIDTH), down=normal(4 * WIDTH, WIDTH),
                             down_b=normal(WIDTH)))
    params = dict(wte=normal(VOCAB, WIDTH), wpe=normal(SEQ, WIDTH), blocks=layers(make, scan),
                  ln_f=dict(g=normal(WIDTH), b=normal(WIDTH)))
    return forward, params


def rms_norm(x, g):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-5) * g


def rotary(x):
    s, d = x.shape[1], x.shape[3]
    angle = jnp.arange(s)[:, None] / 10000.0 ** (jnp.arange(0, d, 2) / d)
    cos, sin = jnp.cos(angle)[None, :, None], jnp.sin(angle)[None, :, None]
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def turned(x):
    """The same in its other form."""
    s, d = x.shape[1], x.shape[3]
    angle = jnp.arange(s)[:, None] / 10000.0 ** (jnp.arange(0, d, 2) / d)
    angle = jnp.concatenate([angle, angle], -1)[None, :, None]
    a, b = jnp.split(x, 2, -1)
    return x * jnp.cos(angle) + jnp.concatenate([-b, a], -1) * jnp.sin(angle)


def llama(scan=False, rotary=rotary, fused=False):
    groups, ffn, d = 2, 96, WIDTH // HEADS

    def attention(q, k, v):
        if fused:
            return jax.nn.dot_product_attention(q, k, v, is_causal=True)
        k, v = (jnp.repeat(y, HEADS // groups, 2) for y in (k, v))
        scores = jnp.einsum("bqnd,bknd->bnqk", q, k) / np.sqrt(d)
        scores = jnp.where(jnp.tril(jnp.ones((SEQ, SEQ), bool))[None, None], scores, -jnp.inf)
        return jnp.einsum("bnqk,bknd->bqnd", jax.nn.softmax(scores, -1), v)

    def block(x, p):
        y = rms_norm(x, p["n1"])
        q, k, v = (jnp.einsum("bsh,hnd->bsnd", y, p[n]) for n in "qkv")
        x = x + jnp.einsum("bsnd,ndh->bsh", attention(rotary(q), rotary(k), v), p["o"])
        y = rms_norm(x, p["n2"])
        return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]

    def forward(params, tokens):
        x = through(block, params["embed"][tokens], params["layers"], scan)
        return rms_norm(x, params["norm"]) @ params["head"]

    def make():
        return dict(n1=normal(WIDTH), n2=normal(WIDTH), q=normal(WIDTH, HEADS, d), k=normal(WIDTH, groups, d),
                    v=normal(WIDTH, groups, d), o=normal(HEADS, d, WIDTH), gate=normal(WIDTH, ffn),
                    up=normal(WIDTH, ffn), down=normal(ffn, WIDTH))
    return forward, dict(embed=normal(VOCAB, WIDTH), layers=layers(make, scan), norm=normal(WIDTH),
                         head=normal(WIDTH, VOCAB))


def perceptron():
    def forward(params, image):
        x = image.reshape(image.shape[0], -1)
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        return x @ params[-1][0] + params[-1][1]
    sizes = [64, 32, 32, 10]
    return forward, [(normal(a, b), normal(b)) for a, b in zip(sizes, sizes[1:])]


def equinox_gpt():
    """Modules of a library, for one sample each: jax.vmap makes them those of a batch."""
    import equinox as eqx

    def block(k):
        return dict(n1=eqx.nn.LayerNorm(WIDTH), n2=eqx.nn.LayerNorm(WIDTH),
                    attn=eqx.nn.MultiheadAttention(HEADS, WIDTH, key=k), up=eqx.nn.Linear(WIDTH, 96, key=k),
                    down=eqx.nn.Linear(96, WIDTH, key=k))
    k = jax.random.split(jax.random.key(0), LAYERS + 2)
    model = dict(wte=eqx.nn.Embedding(VOCAB, WIDTH, key=k[-1]), pos=normal(SEQ, WIDTH),
                 blocks=[block(q) for q in k[:LAYERS]], norm=eqx.nn.LayerNorm(WIDTH),
                 head=eqx.nn.Linear(WIDTH, VOCAB, use_bias=False, key=k[-2]))
    params, static = eqx.partition(model, eqx.is_array)

    def one(m, ids):
        x, seen = jax.vmap(m["wte"])(ids) + m["pos"], jnp.tril(jnp.ones((SEQ, SEQ), bool))
        for b in m["blocks"]:
            y = jax.vmap(b["n1"])(x)
            x = x + b["attn"](y, y, y, mask=seen)
            x = x + jax.vmap(lambda r: b["down"](jax.nn.gelu(b["up"](b["n2"](r)))))(x)
        return jax.vmap(lambda r: m["head"](m["norm"](r)))(x)
    return lambda params, tokens: jax.vmap(lambda ids: one(eqx.combine(params, static), ids))(tokens), params


def with_loss(made):
    forward, params = made

    def loss(params, tokens, targets):
        logits = jax.nn.log_softmax(forward(params, tokens))
        return -jnp.mean(jnp.take_along_axis(logits, targets[..., None], -1))
    return loss, params


def with_optax_loss(made):
    """As optax has it with integer labels."""
    forward, params = made

    def loss(params, tokens, targets):
        logits = forward(params, tokens)
        logits -= jax.lax.stop_gradient(jnp.max(logits, -1, keepdims=True))
        label = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return (jnp.log(jnp.sum(jnp.exp(logits), -1)) - label).mean()
    return loss, params


def sorted_logits():
    forward, params = perceptron()
    return lambda params, image: jnp.sort(forward(params, image), -1), params


def gradient():
    loss, params = with_loss(gpt())
    return jax.grad(loss), params


CASES = {  # what makes it; the case whose ops it has; what is refused
    "gpt": dict(make=gpt), "gpt-scan": dict(make=lambda: gpt(scan=True), like="gpt"),
    "gpt-loss": dict(make=lambda: with_loss(gpt()), like="gpt", loss=True),
    "gpt-optax": dict(make=lambda: with_optax_loss(gpt()), like="gpt", loss=True),
    "gpt-flax": dict(make=lambda: gpt(norm=fast_norm, take=True), like="gpt"),
    "gpt-exact": dict(make=lambda: gpt(exact=True)),
    "llama": dict(make=llama), "llama-scan": dict(make=lambda: llama(scan=True), like="llama"),
    "llama-turned": dict(make=lambda: llama(rotary=turned), like="llama"),
    "llama-fused": dict(make=lambda: llama(fused=True), like="llama"),
    "equinox": dict(make=equinox_gpt, needs="equinox"),
    "perceptron": dict(make=perceptron, image=True),
    "sorted": dict(make=sorted_logits, image=True, refused=r"sort \(1, in .*sort"),
    "gradient": dict(make=gradient, loss=True, refused="gradient"),
}
FIXTURES = ["gpt-scan", "llama", "sorted"]


def fields(data):
    """(number, wire type, value, bytes of the field) of a protobuf message."""
    def varint(at):
        v = shift = 0
        while True:
            v |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return v, at
    at = 0
    while at < len(data):
        tag, to = varint(at)
        value, to = varint(to) if tag & 7 in (0, 2) else (None, to + (8 if tag & 7 == 1 else 4))
        if tag & 7 == 2:
            value, to = data[to:to + value], to + value
        yield tag >> 3, tag & 7, value, data[at:to]
        at = to


KEPT = {  # what a module of the tests has of each message; inner messages by field
    "module": ({1, 3, 6}, {3: "computation"}), "computation": ({1, 2, 5, 6}, {2: "instruction"}),
    "instruction": (set(range(1, 64)) - {43, 49, 51, 61}, {3: "shape", 7: "metadata", 8: "literal"}),
    "shape": ({2, 3, 4}, {4: "shape"}), "metadata": ({2}, {}), "literal": (set(range(64)), {1: "shape"}),
}


def slim(data, message="module"):
    """The module without layouts, source lines and what else weft-import does not read."""
    kept, inner = KEPT[message]
    out = b""
    for number, kind, value, whole in fields(data):
        if number in inner and kind == 2:
            value, size = slim(value, inner[number]), b""
            n = len(value)
            while n > 127:
                size, n = size + bytes([n & 127 | 128]), n >> 7
            out += bytes([number << 3 | 2]) + size + bytes([n]) + value
        elif number in kept:
            out += whole
    return out


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def kinds(document):
    """The kinds of op in their order, with blocks written out."""
    model, out = json.loads(document), []
    for op in model["ops"]:
        inner = [o["kind"] for o in op.get("ops", [op]) if len(o["in"]) > 1 or o["kind"] != "add"]
        out += inner * (model["sizes"][op["repeat"]] if "repeat" in op else 1)
    return out


def losses_of(loss, params, step=jnp.float32(LR)):
    m, v = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
    losses = []
    for n in range(1, STEPS + 1):
        value, g = jax.value_and_grad(loss)(params)
        norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
        g = jax.tree.map(lambda x: x * jnp.minimum(1.0, 1.0 / (norm + 1e-6)), g)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.95 * a + 0.05 * b * b, v, g)
        params = jax.tree.map(
            lambda p, a, b: p - step * (0.1 * (p.ndim >= 2) * p + a / (1 - 0.9 ** n) /
                                        (jnp.sqrt(b / (1 - 0.95 ** n)) + 1e-8)), params, m, v)
        losses.append(float(value))
    return losses


def data_of(case, folder):
    rng = np.random.default_rng(7)
    if "image" not in case:
        ids = np.cumsum(rng.integers(0, 5, BATCH * SEQ + 1)) % VOCAB
        ids.astype("<u2").tofile(os.path.join(folder, "tokens.bin"))
        rows = lambda a: jnp.asarray(a.reshape(BATCH, -1).astype(np.int32))
        return os.path.join(folder, "tokens.bin"), rows(ids[:-1]), rows(ids[1:])
    pixels, labels = (rng.integers(0, n, s).astype(np.uint8) for n, s in ((256, (BATCH, 8, 8)), (10, BATCH)))
    for name, a in (("images", pixels), ("labels", labels)):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(bytes([0, 0, 8, a.ndim]) + np.array(a.shape, ">i4").tobytes() + a.tobytes())
    return (f"{folder}/images,{folder}/labels", jnp.asarray(pixels / np.float32(255)),
            jnp.asarray(labels.astype(np.int32)))


def train(bin, folder, data):
    with open(f"{folder}/plan.json", "w") as f:
        json.dump({"format": "weft-plan/1", "model": f"{folder}/model.json", "batch": BATCH, "stages": [{}]}, f)
    rc, out, err = run(f"{bin}/weft-run", "-q", "-n", str(STEPS), "--data", data, "--validation", "0",
                       "--lr", str(LR), "--min-lr", str(LR), "--warmup", "0", "--init",
                       f"{folder}/model.safetensors", f"{folder}/plan.json")
    return [json.loads(line)["loss"] for line in out.splitlines()] if rc == 0 else err.strip()


def imported(name, bin, folder):
    global random
    random, case = np.random.default_rng(1), CASES[name]
    function, params = case["make"]()
    data, inputs, targets = data_of(case, folder)
    args = (params, inputs, targets) if "loss" in case else (params, inputs)
    export_hlo.export(function, args, f"{folder}/{name}.hlo", f"{folder}/model.safetensors")
    return run(f"{bin}/weft-import", "-o", f"{folder}/model.json", f"{folder}/{name}.hlo") + (
        function, params, data, inputs, targets)


def compare(name, bin, folder):
    case = CASES[name]
    if "needs" in case and not importlib.util.find_spec(case["needs"]):
        print(f"{name}: {case['needs']} is not installed: left out", flush=True)
        return True
    rc, _, err, function, params, data, inputs, targets = imported(name, bin, folder)
    if rc or "refused" in case:
        good = rc == 3 and bool(re.search(case.get("refused", "^$"), err))
        print(f"{name}: {err.strip().split('.hlo: ')[-1]}", flush=True)
        return good
    with open(f"{folder}/model.json") as f:
        ops = kinds(f.read())
    count = sum(p.size for p in jax.tree.leaves(params))
    same = f"{count} parameters" in err
    if "like" in case:
        with tempfile.TemporaryDirectory() as other:
            imported(case["like"], bin, other)
            with open(f"{other}/model.json") as f:
                same &= sorted(kinds(f.read())) == sorted(ops)

    def loss(params):
        logits = (function if "loss" not in case else CASES[case["like"]]["make"]()[0])(params, inputs)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1))
    theirs, ours = losses_of(loss, params), train(bin, folder, data)
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs)) if isinstance(ours, list) else ours
    print(f"{name}: {count} parameters, {len(ops)} ops, losses "
          f"{worst if isinstance(worst, str) else f'{worst:.1e}'}" + ("" if same else ", OPS DIFFER"), flush=True)
    return same and isinstance(worst, float) and worst < LIMIT


def large(bin, count):
    """Processor seconds of weft-import."""
    global normal, WIDTH, HEADS, LAYERS, SEQ, VOCAB
    WIDTH, HEADS, LAYERS, SEQ, VOCAB = 768, 12, count, 1024, 50257
    normal = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    with tempfile.TemporaryDirectory() as folder:
        function, params = gpt()
        args = (params, jax.ShapeDtypeStruct((8, SEQ), jnp.int32))
        export_hlo.export(function, args, f"{folder}/large.hlo")
        text = jax.jit(function).lower(*args).compiler_ir("hlo").as_hlo_text()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        rc, _, err = run(f"{bin}/weft-import", "-o", f"{folder}/model.json", f"{folder}/large.hlo")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{text.count(' = ')} instructions: {after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.2f} s, "
          f"{err.strip()}")
    return rc


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bin")
    parser.add_argument("--fixtures", metavar="DIR")
    parser.add_argument("--large", type=int, metavar="LAYERS")
    parser.add_argument("cases", nargs="*", metavar="CASE", default=list(CASES))
    args, good = parser.parse_args(), True
    if args.large:
        return large(args.bin, args.large)
    for name in FIXTURES if args.fixtures else args.cases:
        with tempfile.TemporaryDirectory() as folder:
            if args.fixtures:
                imported(name, args.bin, folder)
                with open(f"{folder}/{name}.hlo", "rb") as f, open(f"{args.fixtures}/{name}.hlo", "wb") as out:
                    out.write(slim(f.read()))
            else:
                good &= compare(name, args.bin, folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
