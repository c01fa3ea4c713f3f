#!/usr/bin/env python3
"""Trains the same models with weft-run and with PyTorch and compares every number.

    scripts/compare-pytorch.py [--bin BUILD/bin] [--steps N] [CASE...]

Needs PyTorch, numpy and transformers; none is needed for anything else. Each case trains a model with
weft-run on one rank, reads the initial weights from a checkpoint of a step that changes nothing
(learning rate 0), and repeats the run in PyTorch with autograd: the model written anew from its
description (pytorch_models.py), or the class of the transformers library (GPT-2, Llama, T5) with the
same weights, in fp32 on the CPU, with torch.optim, torch's own clipping and cross-entropy. The order of the samples
does not matter: an epoch of the data is exactly one batch, and so is a group of batch norm.

Prints per case the largest relative difference of loss and gradient norm over all steps and
of the final weights (norm of the difference over norm of the tensor, of the worst tensor; and
largest difference over largest element): of weft from PyTorch's fp32 and fp64 runs, and of these
two. Ends with status 1 if weft is farther from the fp64 run than 1e-5, 1e-4, 1e-4.
"""
import argparse
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
import transformers

from pytorch_models import (PAD, ROUTER_METRICS, decays, experts, gpt, is_statistic, llama, load_checkpoint, mlp,
                            moe, one_loss, positions, sees, t5, target_loss, transformer, wide_resnet)

LIMITS = {"loss": 1e-5, "grad_norm": 1e-4, "weights": 1e-4}


def learning_rate(step, steps, peak, warmup):
    """Linear warm-up, then a cosine to a tenth; steps count from 0."""
    if step < warmup:
        return peak * (step + 1) / warmup
    if steps <= warmup:
        return peak
    t = min(1.0, (step - warmup) / (steps - warmup))
    return peak / 10 + 0.5 * (peak - peak / 10) * (1 + math.cos(math.pi * t))


def all_experts(w, p, x):
    """What every expert makes of every token: [batch, seq, experts, hidden]."""
    h = F.gelu(torch.einsum("bsh,ehf->bsef", x, w[p + "fc1.weight"]), approximate="tanh")
    return torch.einsum("bsef,efh->bseh", h, w[p + "fc2.weight"])


def mixtral(w, case, x, p):
    """The routing of transformers' MixtralSparseMoeBlock, which drops nothing, around our experts."""
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
    block = MixtralSparseMoeBlock(MixtralConfig(
        hidden_size=case["hidden"], intermediate_size=8, num_local_experts=case["experts"],
        num_experts_per_tok=case["top"]))
    del block.gate.weight
    block.gate.weight = w[p + "router.weight"].T
    del block.experts

    def run(states, index, gates):
        y = all_experts(w, p, states[None])[0]
        y = y.gather(1, index[..., None].expand(*index.shape, case["hidden"]))
        return (gates[..., None] * y).sum(1)

    block.experts = run
    return block(x), experts(w, case, x, p)[1]


# Classes of the transformers library: its name of each parameter, and the tensor from ours.

def turned(t):
    """A linear layer of theirs: [in.., out] of ours as [out, in]; the dims of a head are one there."""
    return lambda n_in: t.reshape(math.prod(t.shape[:n_in]), -1).T


def call(model, params, *args, **kwargs):
    out = torch.func.functional_call(model.eval(), params, args, dict(kwargs, use_cache=False))
    return out.logits


def inside(case, tokens, dtype):
    """As transformers' classes take documents: what is added to scores, and positions."""
    if "documents" not in case:
        return {}
    mask = sees(case, tokens)["attn_mask"]
    return {"attention_mask": torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min),
            "position_ids": positions(case, tokens)}


def gpt2_class(w, case, tokens):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=case["vocab"], n_positions=case["seq"], n_embd=case["hidden"],
        n_layer=case["layers"], n_head=case["heads"], attn_implementation="eager"))
    p = {"transformer.wte.weight": w["wte.weight"], "transformer.wpe.weight": w["wpe.weight"],
         "lm_head.weight": w["wte.weight"]}
    def norm(theirs, ours):
        for n in ("weight", "bias"):
            p[f"transformer.{theirs}.{n}"] = w[f"{ours}.{n}"]
    norm("ln_f", "ln")
    for i in range(case["layers"]):
        norm(f"h.{i}.ln_1", f"layer.{i}.ln1")
        norm(f"h.{i}.ln_2", f"layer.{i}.ln2")
        apart = [torch.cat([w[f"layer.{i}.{n}.{kind}"].flatten(d) for n in "qkv"], d)
                 if f"layer.{i}.q.{kind}" in w else w[f"layer.{i}.qkv.{kind}"].flatten(d)
                 for kind, d in (("weight", 1), ("bias", 0))]
        for theirs, weight, bias in (
                ("attn.c_attn", *apart),
                *((t, w[f"layer.{i}.{o}.weight"].flatten(0, -2), w[f"layer.{i}.{o}.bias"])
                  for t, o in (("attn.c_proj", "proj"), ("mlp.c_fc", "fc1"), ("mlp.c_proj", "fc2")))):
            p[f"transformer.h.{i}.{theirs}.weight"] = weight
            p[f"transformer.h.{i}.{theirs}.bias"] = bias
    return call(model, p, tokens, **inside(case, tokens, w["wte.weight"].dtype))


def llama_class(w, case, tokens):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=case["vocab"], hidden_size=case["hidden"], intermediate_size=case["ffn"],
        num_hidden_layers=case["layers"], num_attention_heads=case["heads"],
        num_key_value_heads=case["kv_heads"], rms_norm_eps=1e-5, max_position_embeddings=case["seq"],
        tie_word_embeddings=bool(case["tied"]), attn_implementation="eager"))
    p = {"model.embed_tokens.weight": w["wte.weight"], "model.norm.weight": w["norm.weight"],
         "lm_head.weight": w["wte.weight" if case["tied"] else "head.weight"]}
    for i in range(case["layers"]):
        theirs, ours = f"model.layers.{i}.", f"layer.{i}."
        p[theirs + "input_layernorm.weight"] = w[ours + "norm1.weight"]
        p[theirs + "post_attention_layernorm.weight"] = w[ours + "norm2.weight"]
        for t, o, n_in in (("self_attn.q_proj", "q", 1), ("self_attn.k_proj", "k", 1),
                           ("self_attn.v_proj", "v", 1), ("self_attn.o_proj", "proj", 2),
                           ("mlp.gate_proj", "gate", 1), ("mlp.up_proj", "up", 1),
                           ("mlp.down_proj", "down", 1)):
            p[f"{theirs}{t}.weight"] = turned(w[f"{ours}{o}.weight"])(n_in)
    return call(model, p, tokens, **inside(case, tokens, w["wte.weight"].dtype))


def t5_class(w, case, texts):
    inputs, before = texts
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=case["vocab"], d_model=case["hidden"], d_kv=case["kv"], d_ff=case["ffn"],
        num_layers=case["layers"], num_decoder_layers=case["layers"], num_heads=case["heads"],
        relative_attention_num_buckets=case["buckets"], dropout_rate=0.0, feed_forward_proj="relu",
        attn_implementation="eager"))
    p = {n: w["wte.weight"] for n in ("shared.weight", "encoder.embed_tokens.weight",
                                      "decoder.embed_tokens.weight", "lm_head.weight")}
    p["encoder.final_layer_norm.weight"] = w["norm.weight"]
    p["decoder.final_layer_norm.weight"] = w["dec_norm.weight"]
    for theirs, ours, parts in (("encoder", "enc", ("SelfAttention",)),
                                ("decoder", "dec", ("SelfAttention", "EncDecAttention"))):
        p[f"{theirs}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = (
            w[f"{ours}.0.attn.positions"])
        for i in range(case["layers"]):
            for n, part in enumerate(parts + ("DenseReluDense",)):
                at, our = f"{theirs}.block.{i}.layer.{n}.", f"{ours}.{i}."
                cross = "cross_" if part == "EncDecAttention" else ""
                p[at + "layer_norm.weight"] = w[f"{our}norm{n + 1}.weight"]
                pairs = ([("wi", "fc1", 1), ("wo", "fc2", 1)] if part == "DenseReluDense" else
                         [("q", cross + "q", 1), ("k", cross + "k", 1), ("v", cross + "v", 1),
                          ("o", cross + "proj", 2)])
                for t, o, n_in in pairs:
                    p[f"{at}{part}.{t}.weight"] = turned(w[f"{our}{o}.weight"])(n_in)
    return call(model, p, inputs, attention_mask=(inputs != PAD).long(), decoder_input_ids=before)


def pairs(w, case, texts):
    """tests/models/pairs.json: an encoder, and a decoder that reads it by products without softmax."""
    inputs, before = texts
    heads = lambda x, name: torch.einsum("bsh,hnk->bsnk", x, w[name + ".weight"])
    x = w["wte.weight"][inputs]
    for i in range(case["layers"]):
        p = f"enc.{i}."
        h = F.rms_norm(x, x.shape[-1:], w[p + "norm.weight"], 1e-5)
        x = x + F.relu(h @ w[p + "fc1.weight"]) @ w[p + "fc2.weight"]
    k, y = heads(x, "keys"), w["wte.weight"][before]
    for i in range(case["layers"]):
        p = f"dec.{i}."
        s = torch.tanh(torch.einsum("btnk,bsnk->bnts", heads(y, p + "q"), k))
        a = torch.einsum("bnts,bsnk->btnk", s, k)
        y = y + torch.einsum("btnk,nkh->bth", a, w[p + "proj.weight"])
    return x @ w["head_in.weight"], y @ w["wte.weight"].T


def pair_losses(case, logits, targets):
    """Of inputs without padding, and of targets without their ends and one id more."""
    mean = lambda x, t, ignore: F.cross_entropy(x.flatten(0, 1), t.flatten(), ignore_index=ignore)
    inputs, answers = targets
    skipped = torch.where(answers == case["skip"], -1, answers)
    return mean(logits[0], inputs, PAD) + mean(logits[1], skipped, -1)


def token_data(folder, case, rng):
    """One batch of windows: token ids that can be learned."""
    n = case["batch"] * case["seq"] + 1
    ids = np.cumsum(rng.integers(0, 5, n)) % case["vocab"]
    path = os.path.join(folder, "tokens.bin")
    ids.astype("<u2").tofile(path)
    windows = torch.tensor(ids[:-1].reshape(case["batch"], case["seq"]))
    targets = torch.tensor(ids[1:].reshape(case["batch"], case["seq"]))
    return path, windows, targets


def masked_data(folder, case, rng):
    """Examples of prompts and answers: of the prompts, and behind the answers, no token is a target."""
    _, windows, targets = token_data(folder, case, rng)
    seq, path = case["seq"], os.path.join(folder, "examples.m32")
    begin = rng.integers(0, seq // 2, case["batch"])
    end = rng.integers(seq // 2, seq, case["batch"])
    for row, b, e in zip(targets, begin, end):
        row[:b] = -1
        row[e:] = -1
    raw = np.zeros(windows.numel() + 1, "<u4")
    raw[:-1] = windows.flatten()
    raw[1:] |= (targets.flatten().numpy() < 0).astype("<u4") << 31
    raw[0] |= 1 << 31
    raw.tofile(path)
    return path, windows, targets


def masked_loss(case, logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def image_data(folder, case, rng):
    n, pixels = case["batch"], case["pixels"]
    images = rng.integers(0, 256, (n, pixels)).astype(np.uint8)
    labels = rng.integers(0, case["classes"], n).astype(np.uint8)
    paths = [os.path.join(folder, f) for f in ("images", "labels")]
    with open(paths[0], "wb") as f:
        shape = [n, case["image"], case["image"], 3] if "image" in case else [n, pixels, 1]
        f.write(struct.pack(f">{len(shape) + 1}i", 0x800 + len(shape), *shape) + images.tobytes())
    with open(paths[1], "wb") as f:
        f.write(struct.pack(">2i", 0x801, n) + labels.tobytes())
    return ",".join(paths), torch.tensor(images / np.float32(255)), torch.tensor(labels).long()


def write_sequences(path, sequences):
    """As Megatron-LM does: PATH.bin and PATH.idx."""
    sizes = np.array([len(s) for s in sequences], "<i4")
    np.concatenate(sequences).astype("<u2").tofile(path + ".bin")
    with open(path + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), 1) + sizes.tobytes())
        f.write((2 * (np.cumsum(sizes, dtype="<i8") - sizes)).tobytes() + struct.pack("<q", 0))


def pair_data(folder, case, rng):
    """Sequences of all lengths, some longer than the model's."""
    def draw(longest):
        return [rng.integers(2, case["vocab"], n) for n in rng.integers(1, longest, case["batch"])]
    def fill(sequences, length, behind):
        rows = [list(s[:length]) + [behind] * (length - len(s)) for s in sequences]
        return torch.tensor(np.array(rows))
    a, b = draw(case["seq"] + 8), draw(case["target_seq"] + 4)
    paths = [os.path.join(folder, f) for f in ("inputs", "targets")]
    for path, sequences in zip(paths, (a, b)):
        write_sequences(path, sequences)
    inputs, answers = fill(a, case["seq"], PAD), fill(b, case["target_seq"], -1)
    before = torch.cat([torch.full_like(answers[:, :1], PAD), answers[:, :-1].clamp(min=PAD)], 1)
    return ",".join(p + ".idx" for p in paths), (inputs, before), (inputs, answers)


HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GPT = dict(model="gpt:nano", forward=gpt, data=token_data, optimizer="adamw", lr=1e-3, batch=8,
           layers=3, hidden=96, heads=6, seq=48, vocab=300, tied=1)
MLP = dict(model="mlp:mnist", forward=mlp, data=image_data, optimizer="sgd", lr=0.05, batch=32,
           layers=2, pixels=196, hidden=64, inner=96, classes=10)
PAIRS = dict(model=os.path.join(HERE, "tests/models/pairs.json"), forward=pairs, data=pair_data,
             loss=pair_losses, optimizer="adamw", lr=1e-3, batch=16, layers=2, seq=24, target_seq=12,
             hidden=24, heads=6, vocab=48, skip=5)
LLAMA = dict(GPT, model="llama:nano", forward=llama, hidden=96, heads=6, kv_heads=2, ffn=256,
             tied=0)
# Tokens grow by two on average and begin anew at the end of the vocabulary: 42 tokens from one 3 to the next.
DOCUMENTS = dict(documents=3, vocab=40, seq=96)
T5 = dict(model="t5:nano", forward=t5, data=pair_data, loss=target_loss, optimizer="adamw",
          lr=1e-4, batch=8, layers=2, hidden=64, heads=4, kv=24, ffn=160, buckets=32, seq=200,
          target_seq=40, vocab=300)
MOE = dict(GPT, model="moe:nano", forward=moe, routed=True, layers=4, heads=4, seq=32, experts=4,
           top=2, slack=125)
RESNET = dict(model="wide-resnet:nano", forward=wide_resnet, data=image_data, optimizer="sgd", lr=0.02,
              steps=6, batch=16, image=16, pixels=16 * 16 * 3, base=8, group=16, classes=10, blocks1=2, blocks2=1,
              blocks3=1, blocks4=1, stem_taps=3, stem_stride=1, pool_stride=1)
CASES = {
    "gpt-tied": GPT,
    "gpt-untied": dict(GPT, tied=0),
    "gpt-sgd": dict(GPT, optimizer="sgd", lr=0.05),
    "gpt-masked": dict(GPT, data=masked_data, loss=masked_loss),
    "gpt-lion": dict(GPT, optimizer="lion", lr=1e-4),
    "llama-lion": dict(LLAMA, optimizer="lion", lr=1e-4),
    "gpt-muon": dict(GPT, optimizer="muon"),
    "llama-muon": dict(LLAMA, optimizer="muon"),
    "moe-muon": dict(MOE, slack=90, optimizer="muon"),
    "gpt-class": dict(GPT, forward=gpt2_class),
    "gpt-qkv-class": dict(GPT, model="gpt-qkv:nano", forward=gpt2_class),
    "gpt-documents": dict(GPT, **DOCUMENTS),
    "gpt-documents-class": dict(GPT, **DOCUMENTS, forward=gpt2_class),
    "moe-documents": dict(MOE, **DOCUMENTS, slack=90),
    "transformer-documents": dict(GPT, **DOCUMENTS, model="transformer:nano", forward=transformer, hidden=64, heads=4,
                                  kv=24, ffn=160, tied=None),
    "llama-documents": dict(LLAMA, **DOCUMENTS),
    "llama-documents-class": dict(LLAMA, **DOCUMENTS, forward=llama_class, optimizer="sgd", lr=0.05),
    "llama": LLAMA,
    "llama-class": dict(LLAMA, forward=llama_class),
    "llama-tied-class": dict(LLAMA, forward=llama_class, tied=1, kv_heads=6, seq=150, optimizer="sgd", lr=0.05),
    "t5": T5,
    "t5-class": dict(T5, forward=t5_class),
    "t5-sgd-class": dict(T5, forward=t5_class, optimizer="sgd", lr=0.003, seq=60, target_seq=150),
    "transformer": dict(GPT, model="transformer:nano", forward=transformer, hidden=64, heads=4, kv=24,
                        ffn=160, tied=None),
    "moe-gshard": dict(MOE, slack=90),
    "moe-switch": dict(MOE, top=1, experts=6),
    "moe-mixtral": dict(MOE, slack=200, routing=mixtral),
    "mlp-sgd": MLP,
    "mlp-adamw": dict(MLP, optimizer="adamw", lr=1e-3),
    "pairs": PAIRS,
    "wide-resnet": RESNET,
}
SIZES = ("target_seq", "pad", "skip", "layers", "hidden", "heads", "kv_heads", "kv", "ffn", "buckets",
         "seq", "vocab", "tied", "pixels", "inner", "classes", "experts", "top", "slack", "image", "base",
         "group", "blocks1", "blocks2", "blocks3", "blocks4", "documents")


def run_weft(args, folder, case, data, steps, lr, save):
    plan = {"format": "weft-plan/1", "model": case["model"], "batch": case["batch"],
            "micro_batch": case.get("group", case["batch"] // 2), "optimizer": case["optimizer"], "stages": [{}],
            "set": ",".join(f"{k}={case[k]}" for k in SIZES if case.get(k) is not None and
                            not (k == "pixels" and "image" in case))}
    path = os.path.join(folder, "plan.json")
    with open(path, "w") as f:
        json.dump(plan, f)
    out = subprocess.run(
        [os.path.join(args.bin, "weft-run"), "-q", "--data", data, "--validation", "0",
         "-n", str(steps), "--lr", repr(lr), "--warmup", str(args.warmup), "--save",
         os.path.join(folder, save), path], check=True, stdout=subprocess.PIPE).stdout
    return [json.loads(line) for line in out.splitlines()]


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al., Symbolic Discovery of Optimization Algorithms, 2023."""

    def __init__(self, groups, lr, betas):
        super().__init__(groups, dict(lr=lr, betas=betas))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = (beta1 * m + (1 - beta1) * p.grad).sign()
                p -= group["lr"] * (update + group["weight_decay"] * p)
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def newton_schulz(x):
    """Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024."""
    x = x / (x.norm() + 1e-7)
    if x.shape[0] > x.shape[1]:
        return newton_schulz_steps(x.T).T
    return newton_schulz_steps(x)


def newton_schulz_steps(x):
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def is_matrix(name, t):
    return t.dim() > 1 and name.endswith(".weight") and name.split(".")[-2] not in ("wte", "wpe", "head")


def orthogonal(name, u):
    """Each matrix of a weight, times 0.2 root of its longer side (Liu et al., Muon is scalable, 2025)."""
    one = lambda x: 0.2 * max(x.shape) ** 0.5 * newton_schulz(x)
    op = name.split(".")[-2]
    if op == "qkv":  # three matrices: [in, 3, heads, kv]
        return torch.stack([one(u[:, i].flatten(1)) for i in range(3)], 1).view_as(u)
    if op in ("fc1", "fc2", "gate", "up", "down") and u.dim() == 3:  # one for each expert
        return torch.stack([one(x) for x in u])
    return one(u.flatten(0, -2) if op == "proj" else u.flatten(1)).view_as(u)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, names, lr, momentum, weight_decay):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))
        self.names = names

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p, name in zip(group["params"], self.names):
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.mul_(group["momentum"]).add_(p.grad)
                o = orthogonal(name, p.grad + group["momentum"] * m)
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * o)


def run_torch(args, case, w, inputs, targets):
    weights = {n: t for n, t in w.items() if not is_statistic(n)}
    for t in weights.values():
        t.requires_grad_(True)
    groups = [{"params": [t for n, t in weights.items() if decays(n, t) == on], "weight_decay": 0.1 * on}
              for on in (True, False)]
    opts = []
    if case["optimizer"] == "adamw":
        opt = torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), eps=1e-8)
    elif case["optimizer"] == "lion":
        opt = Lion(groups, lr=1.0, betas=(0.9, 0.99))
    elif case["optimizer"] == "muon":
        matrices = {n: t for n, t in weights.items() if is_matrix(n, t)}
        rest = [{**g, "params": [t for t in g["params"] if not any(t is x for x in matrices.values())]}
                for g in groups]
        opt = torch.optim.AdamW(rest, lr=1.0, betas=(0.9, 0.95), eps=1e-8)
        opts.append(Muon(list(matrices.values()), list(matrices), lr=1.0, momentum=0.95, weight_decay=0.1))
    else:
        opt = torch.optim.SGD(groups, lr=1.0, momentum=0.9)
    opts.append(opt)
    metrics = []
    for step in range(args.steps):
        for g in [g for o in opts for g in o.param_groups]:
            g["lr"] = learning_rate(step, args.steps, case["lr"], args.warmup)
        for t in weights.values():
            t.grad = None
        result, side, more = case["forward"](w, case, inputs), 0, {}
        if "routed" in case:  # losses of routers, and metrics
            result, side, more = result
        loss = case.get("loss", one_loss)(case, result, targets)
        (loss + side).backward()
        norm = torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        for o in opts:
            o.step()
        metrics.append({"loss": loss.item(), "grad_norm": norm.item(),
                        **{k: v.item() for k, v in more.items()}})
    return metrics


def weight_difference(a, b):
    """Of the worst tensor: norm of the difference over its norm, and element over element."""
    by_norm, by_element = 0.0, 0.0
    for name in a:
        x, y = a[name].detach().double(), b[name].detach().double()
        if name.endswith(".qkv.bias"):
            # Softmax does not see the bias of the keys: its gradient is rounding noise, which
            # AdamW blows up to full steps of either sign.
            x, y = x[[0, 2]], y[[0, 2]]
        elif name.endswith(".k.bias"):
            continue
        by_norm = max(by_norm, ((x - y).norm() / max(y.norm().item(), 1e-7)).item())
        by_element = max(by_element, ((x - y).abs().max() / max(y.abs().max().item(), 1e-7)).item())
    return by_norm, by_element


def differences(ours, theirs, a, b):
    worst = lambda k: max(abs(x[k] - y[k]) / max(abs(y[k]), 1e-3) for x, y in zip(ours, theirs))
    found = {k: worst(k) for k in ("loss", "grad_norm")}
    # Losses of routers are held to the limit of the loss.
    found["loss"] = max([found["loss"]] + [worst(k) for k in ROUTER_METRICS if k in theirs[0]])
    found["weights"], found["element"] = weight_difference(a, b)
    return found


def show(found):
    return (f"losses {found['loss']:.1e}, gradient norms {found['grad_norm']:.1e}, weights "
            f"{found['weights']:.1e} (largest element {found['element']:.1e})")


def compare(args, name, case):
    # Some nets amplify rounding: PyTorch's fp32 run soon leaves its fp64 run.
    args = argparse.Namespace(**dict(vars(args), steps=min(args.steps, case.get("steps", args.steps))))
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        data, inputs, targets = case["data"](folder, case, rng)
        run_weft(args, folder, case, data, 1, 0.0, "begin")
        ours = run_weft(args, folder, case, data, args.steps, case["lr"], "end")
        begin = load_checkpoint(os.path.join(folder, "begin"))
        for key, t in begin.items():  # the step that changes no weight moves running statistics
            if is_statistic(key):
                t.fill_(float(key.endswith(".variance")))
        end = load_checkpoint(os.path.join(folder, "end"))
    single = {k: t.clone() for k, t in begin.items()}
    double = {k: t.double() for k, t in begin.items()}
    theirs = run_torch(args, case, single, inputs, targets)
    is_image = torch.is_tensor(inputs) and inputs.is_floating_point()
    exact = run_torch(args, case, double, inputs.double() if is_image else inputs, targets)
    # Of Lion PyTorch in fp32 has the last word: a sign of what is rounding noise is as good as the other.
    lion = case["optimizer"] == "lion"
    found = differences(ours, theirs if lion else exact, end, single if lion else double)
    good = all(found[k] <= LIMITS[k] for k in LIMITS)
    print(f"{'ok' if good else 'NOT OK'} {name}: {len(ours)} steps, loss {ours[0]['loss']:.4f} to "
          f"{ours[-1]['loss']:.4f}")
    print(f"    weft and PyTorch           {show(differences(ours, theirs, end, single))}")
    print(f"    PyTorch, fp32 and fp64     {show(differences(theirs, exact, single, double))}")
    print(f"    weft, and PyTorch in fp64  {show(found)}", flush=True)
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--bin", default=os.path.join(HERE, "bin"), help="folder of weft-run")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=4)
    p.add_argument("cases", nargs="*", metavar="CASE", help=" ".join(CASES))
    args = p.parse_args()
    torch.manual_seed(0)
    print(f"PyTorch {torch.__version__}, fp32 on the CPU")
    results = [compare(args, c, CASES[c]) for c in args.cases or CASES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
