"""The model families of share/models, written anew with PyTorch's own operations.

compare-pytorch.py holds weft's numbers to these definitions, and bench-pytorch.py its speed; so they are
written as one writes PyTorch for speed: fused attention, products with their bias, convolutions on
channels-last tensors, tokens copied to their experts.

A definition is a function (w, case, inputs): w has the weights by weft's names and in weft's shapes,
case the sizes of the model by weft's names. It returns the logits, or (of routers) the logits, the
side losses of the step and the metrics.
"""
import functools
import json
import math
import os
import struct

import numpy as np
import torch
import torch.nn.functional as F

PAD = 0
ROUTER_METRICS = ("balance", "router_z", "dropped")


def kept(make):
    """Tables that are made once, but inside of what torch.compile traces, where they become constants or a part
    of the graph: a cache there breaks it."""
    cache = functools.lru_cache(make)
    return functools.wraps(make)(lambda *args: (make if torch.compiler.is_compiling() else cache)(*args))


def load_checkpoint(folder, kind="param"):
    """All tensors of one kind of the newest checkpoint, whole, by name."""
    steps = sorted(f for f in os.listdir(folder) if f.startswith("step-"))
    path = os.path.join(folder, steps[-1])
    out = {}
    for name in sorted(os.listdir(path)):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(path, name), "rb") as f:
            size = struct.unpack("<Q", f.read(8))[0]
            header = json.loads(f.read(size))
            for key, t in header.items():
                if key == "__metadata__" or not key.startswith(kind + "/"):
                    continue
                begin, end = t["data_offsets"]
                f.seek(8 + size + begin)
                array = np.frombuffer(f.read(end - begin), "<f4").reshape(t["shape"])
                out[key.split("/", 1)[1].split("@")[0]] = torch.tensor(array)
    return out


def is_statistic(name):
    """Running statistics of batch norm are no weights."""
    return name.endswith((".mean", ".variance"))


def decays(name, t):
    """Weight decay is for matrices: not for vectors, and not for biases of several dims."""
    return t.dim() >= 2 and not name.endswith(".bias")


def linear(w, name, x, outs=1):
    """x by the weight [in.., out..] whose last `outs` dims are the result's, and its bias, if any."""
    weight, bias = w[name + ".weight"], w.get(name + ".bias")
    weight = weight.reshape(math.prod(weight.shape[:-outs]), -1)
    return F.linear(x, weight.T, None if bias is None else bias.reshape(-1))


def heads_of(x, kv):
    """[batch, seq, heads * kv] as [batch, heads, seq, kv]."""
    return x.unflatten(-1, (-1, kv)).transpose(1, 2)


def document_starts(case, tokens):
    """Where the document begins that each token is in: behind the last token in front of it that ends one."""
    at = torch.arange(tokens.shape[1], device=tokens.device)
    behind = torch.where(tokens == case["documents"], at + 1, 0).cummax(1).values
    return F.pad(behind[:, :-1], (1, 0))


def sees(case, tokens):
    """How attention is masked: causal, and inside documents alone where a token ends them."""
    if "documents" not in case:
        return {"is_causal": True}
    at = torch.arange(tokens.shape[1], device=tokens.device)
    key, query = at[None, None, :], at[None, :, None]
    inside = (key <= query) & (key >= document_starts(case, tokens)[:, :, None])
    return {"attn_mask": inside[:, None]}


def positions(case, tokens):
    """Of tokens in their documents."""
    return torch.arange(tokens.shape[1], device=tokens.device) - document_starts(case, tokens)


def learned_positions(w, case, tokens):
    """What is added to the embedding of tokens."""
    table = w["wpe.weight"]
    return table[positions(case, tokens)] if "documents" in case else table


def attend(q, k, v, **how):
    """Of [batch, heads, seq, kv]: [batch, seq, heads * kv]."""
    return F.scaled_dot_product_attention(q, k, v, **how).transpose(1, 2).flatten(2)


def layer_norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-5)


def rms_norm(w, name, x, eps):
    return F.rms_norm(x, x.shape[-1:], w[name + ".weight"], eps)


# ---- decoders ----------------------------------------------------------------------------------

def gpt_attention(w, case, x, p, how):
    """The first half of a layer, with its residual."""
    kv = case["hidden"] // case["heads"]
    qkv = linear(w, p + "qkv", layer_norm(w, p + "ln1", x), 3)
    q, k, v = (heads_of(t, kv) for t in qkv.chunk(3, -1))
    return x + linear(w, p + "proj", attend(q, k, v, **how))


def gpt_feed_forward(w, case, x, p):
    h = linear(w, p + "fc1", layer_norm(w, p + "ln2", x))
    return x + linear(w, p + "fc2", F.gelu(h, approximate="tanh"))


def gpt_head(w, case, x):
    head = w["wte.weight"] if case["tied"] else w["head.weight"]
    return F.linear(layer_norm(w, "ln", x), head)


def gpt(w, case, tokens):
    """share/models/gpt.json: pre-norm, learned positions, tanh GELU, biases."""
    x = F.embedding(tokens, w["wte.weight"]) + learned_positions(w, case, tokens)
    how = sees(case, tokens)
    for i in range(case["layers"]):
        p = f"layer.{i}."
        x = gpt_feed_forward(w, case, gpt_attention(w, case, x, p, how), p)
    return gpt_head(w, case, x)


@kept
def angles(seq, kv, dtype, device):
    """Cosines and sines of every position's pairs, twice side by side: [seq, kv]."""
    rate = 10000.0 ** (-torch.arange(0, kv, 2, dtype=torch.float32, device=device) / kv)
    angle = torch.outer(torch.arange(seq, dtype=torch.float32, device=device), rate).repeat(1, 2)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def turn(x):
    """Rotary positions: pairs are half a head apart."""
    cos, sin = angles(x.shape[2], x.shape[3], x.dtype, x.device)
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def llama(w, case, tokens):
    """share/models/llama.json: RMS norm, rotary positions, SwiGLU, heads of keys that queries share."""
    kv = case["hidden"] // case["heads"]
    x = F.embedding(tokens, w["wte.weight"])
    how = sees(case, tokens)
    for i in range(case["layers"]):
        p = f"layer.{i}."
        h = rms_norm(w, p + "norm1", x, 1e-5)
        q, k, v = (heads_of(linear(w, p + n, h, 2), kv) for n in "qkv")
        a = attend(turn(q), turn(k), v, **how,
                   enable_gqa=case["kv_heads"] != case["heads"])
        x = x + linear(w, p + "proj", a)
        h = rms_norm(w, p + "norm2", x, 1e-5)
        h = F.silu(linear(w, p + "gate", h)) * linear(w, p + "up", h)
        x = x + linear(w, p + "down", h)
    return F.linear(rms_norm(w, "norm", x, 1e-5), w["wte.weight" if case["tied"] else "head.weight"])


def transformer(w, case, tokens):
    """share/models/transformer.json: RMS norm, learned positions, no biases, scores not scaled."""
    x = F.embedding(tokens, w["wte.weight"]) + learned_positions(w, case, tokens)
    how = sees(case, tokens)
    for i in range(case["layers"]):
        p = f"layer.{i}."
        h = rms_norm(w, p + "norm1", x, 1e-6)
        q, k, v = (heads_of(linear(w, p + n, h, 2), case["kv"]) for n in "qkv")
        x = x + linear(w, p + "proj", attend(q, k, v, **how, scale=1.0))
        x = x + linear(w, p + "fc2", F.relu(linear(w, p + "fc1", rms_norm(w, p + "norm2", x, 1e-6))))
    return F.linear(rms_norm(w, "norm", x, 1e-6), w["head.weight"])


# ---- mixtures of experts -----------------------------------------------------------------------

def experts(w, case, x, p):
    """Top-k routing with capacity per sample, first choices before second ones; GELU experts."""
    (b, s, hidden), k, n = x.shape, case["top"], case["experts"]
    capacity = -(-case["slack"] * k * s // (100 * n))
    logits = x @ w[p + "router.weight"]
    probs = logits.softmax(-1)
    gates, index = probs.topk(k, -1)  # [batch, seq, k]
    if k > 1:
        gates = gates / gates.sum(-1, keepdim=True)
    with torch.no_grad():
        index = index.transpose(1, 2).reshape(b, k * s)
        chosen = F.one_hot(index, n)
        place = (chosen.cumsum(1).gather(2, index[..., None]) - 1).squeeze(-1)
        kept = place < capacity
        row = (index * b + torch.arange(b, device=x.device)[:, None]) * capacity + place
        row = torch.where(kept, row, n * b * capacity).reshape(-1)  # the last row is a spare
        load = chosen[:, :s].to(x.dtype).mean(1)
    rows = x.new_zeros(n * b * capacity + 1, hidden).index_copy(0, row, x.repeat(1, k, 1).flatten(0, 1))
    y = torch.bmm(rows[:-1].view(n, b * capacity, hidden), w[p + "fc1.weight"])
    y = torch.bmm(F.gelu(y, approximate="tanh"), w[p + "fc2.weight"]).flatten(0, 1)
    y = torch.cat([y, y.new_zeros(1, hidden)]).index_select(0, row).view(b, k, s, hidden)
    return (gates.transpose(1, 2)[..., None] * y).sum(1), {
        "balance": n * (load * probs.mean(1)).sum(-1).mean(),
        "router_z": logits.logsumexp(-1).square().mean(),
        "dropped": 1 - kept.to(x.dtype).mean()}


def moe(w, case, tokens):
    """share/models/moe.json: gpt with experts in every other feed-forward part, from the first on."""
    x = F.embedding(tokens, w["wte.weight"]) + learned_positions(w, case, tokens)
    how = sees(case, tokens)
    metrics = []
    for i in range(case["layers"] // 2):
        p = f"pair.{i}.sparse.0."
        x = gpt_attention(w, case, x, p, how)
        y, found = case.get("routing", experts)(w, case, layer_norm(w, p + "ln2", x), p)
        p = f"pair.{i}.dense.0."
        x = gpt_feed_forward(w, case, gpt_attention(w, case, x + y, p, how), p)
        metrics.append(found)
    means = {k: torch.stack([m[k] for m in metrics]).mean() for k in ROUTER_METRICS}
    side = sum(0.01 * m["balance"] + 0.001 * m["router_z"] for m in metrics)
    return gpt_head(w, case, x), side, means


# ---- encoder and decoder -----------------------------------------------------------------------

@kept
def t5_buckets(queries, keys, causal, buckets, device, most=128):
    """The bucket of every pair's distance: [queries, keys]."""
    apart = torch.arange(keys, device=device)[None] - torch.arange(queries, device=device)[:, None]
    half = buckets if causal else buckets // 2
    first = 0 if causal else half * (apart > 0)
    n = (-apart).clamp(min=0) if causal else apart.abs()
    exact = half // 2
    far = exact + (torch.log(n.float().clamp(min=1) / exact) / math.log(most / exact) *
                   (half - exact)).long()
    return first + torch.where(n < exact, n, far.clamp(max=half - 1))


def t5_bias(w, case, name, queries, keys, causal):
    """What relative positions add to the scores of a stack: [1, heads, queries, keys]."""
    table = w[f"{name}.0.attn.positions"]
    bucket = t5_buckets(queries, keys, causal, case["buckets"], table.device)
    return F.embedding(bucket, table).permute(2, 0, 1)[None]


def t5_mixer(w, case, x, h, keys, p, cross, mask):
    """Attention from h to keys, added to x."""
    q = heads_of(linear(w, p + cross + "q", h, 2), case["kv"])
    k, v = (heads_of(linear(w, p + cross + n, keys, 2), case["kv"]) for n in "kv")
    return x + linear(w, p + cross + "proj", attend(q, k, v, attn_mask=mask, scale=1.0))


def t5_feed_forward(w, x, p, norm):
    return x + linear(w, p + "fc2", F.relu(linear(w, p + "fc1", rms_norm(w, p + norm, x, 1e-6))))


def t5(w, case, texts):
    """share/models/t5.json: relative positions of the first layer serve all, inputs have lengths."""
    inputs, before = texts
    x, y = F.embedding(inputs, w["wte.weight"]), F.embedding(before, w["wte.weight"])
    minus = torch.zeros(inputs.shape, dtype=x.dtype, device=x.device).masked_fill(inputs == PAD, -math.inf)[:, None, None]
    seq, target_seq = inputs.shape[1], before.shape[1]
    bias = t5_bias(w, case, "enc", seq, seq, False) + minus
    for i in range(case["layers"]):
        p = f"enc.{i}."
        h = rms_norm(w, p + "norm1", x, 1e-6)
        x = t5_feed_forward(w, t5_mixer(w, case, x, h, h, p, "", bias), p, "norm2")
    x = rms_norm(w, "norm", x, 1e-6)
    later = torch.full((target_seq, target_seq), -math.inf, dtype=x.dtype, device=x.device).triu(1)
    bias = t5_bias(w, case, "dec", target_seq, target_seq, True) + later
    for i in range(case.get("dec_layers", case["layers"])):
        p = f"dec.{i}."
        h = rms_norm(w, p + "norm1", y, 1e-6)
        y = t5_mixer(w, case, y, h, h, p, "", bias)
        y = t5_mixer(w, case, y, rms_norm(w, p + "norm2", y, 1e-6), x, p, "cross_", minus)
        y = t5_feed_forward(w, y, p, "norm3")
    y = rms_norm(w, "dec_norm", y, 1e-6)
    return F.linear(y * case["hidden"] ** -0.5, w["wte.weight"])


# ---- images ------------------------------------------------------------------------------------

def mlp(w, case, images):
    """share/models/mlp.json: residual blocks of two matrices."""
    x = F.relu(linear(w, "fc_in", images))
    for i in range(case["layers"]):
        p = f"layer.{i}."
        x = x + linear(w, p + "fc2", F.relu(linear(w, p + "fc1", x)))
    return linear(w, "fc_out", x)


def batch_norm(w, case, x, name):
    """PyTorch's, group by group; running statistics take the mean over the groups of a step."""
    mean, variance = w[name + ".mean"], w[name + ".variance"]
    how = dict(weight=w[name + ".weight"], bias=w[name + ".bias"], training=True, eps=1e-5)
    if len(x) == case["group"]:
        return F.batch_norm(x, mean, variance, momentum=0.1, **how)
    parts, seen = [], []
    for part in x.split(case["group"]):
        seen.append((torch.zeros_like(mean), torch.zeros_like(variance)))
        parts.append(F.batch_norm(part, *seen[-1], momentum=1.0, **how))
    mean.lerp_(torch.stack([m for m, _ in seen]).mean(0), 0.1)
    variance.lerp_(torch.stack([v for _, v in seen]).mean(0), 0.1)
    return torch.cat(parts)


def wide_resnet(w, case, images):
    """share/models/wide-resnet.json, blocks as torchvision's Bottleneck: the stride stands in the
    3x3 convolution."""
    side, taps = case["image"], case["stem_taps"]
    conv = lambda x, name, **how: F.conv2d(x, w[name + ".weight"].permute(3, 2, 0, 1), **how)
    norm = lambda x, name: batch_norm(w, case, x, name)

    def bottleneck(x, name, stride, first):
        y = F.relu(norm(conv(x, name + "conv1"), name + "bn1"))
        y = F.relu(norm(conv(y, name + "conv2", stride=stride, padding=1), name + "bn2"))
        y = norm(conv(y, name + "conv3"), name + "bn3")
        if first:
            x = norm(conv(x, name + "short", stride=stride), name + "bn")
        return F.relu(x + y)

    x = images.reshape(-1, side, side, 3).permute(0, 3, 1, 2)  # channels last
    x = F.relu(norm(conv(x, "conv", stride=case["stem_stride"], padding=taps // 2), "bn"))
    x = F.max_pool2d(x, 3, stride=case["pool_stride"], padding=1)
    for s in range(4):
        x = bottleneck(x, f"stage.{s}.first.0.", 1 if s == 0 else 2, True)
        for i in range(case[f"blocks{s + 1}"] - 1):
            x = bottleneck(x, f"stage.{s}.block.{i}.", 1, False)
    return linear(w, "fc", x.mean((2, 3)))


# ---- losses ------------------------------------------------------------------------------------

def one_loss(case, logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def target_loss(case, logits, targets):
    """Of pairs of texts: answers end in -1."""
    return F.cross_entropy(logits.flatten(0, 1), targets[1].flatten(), ignore_index=-1)
