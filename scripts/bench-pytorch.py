#!/usr/bin/env python3
"""Tokens per second of PyTorch eager on the CPU, for the shapes that `make bench` gives weft.

  bench-pytorch.py LAYERS HIDDEN HEADS SEQ VOCAB BATCH THREADS STEPS [EXPERTS]

The model is the one of share/models/gpt.json: pre-norm, learned positions, tanh GELU, biases, tied
head; fused attention; AdamW; gradient clipping at 1. With experts, that of share/models/moe.json:
tokens are copied to slots, all experts are two batched products. Prints the median milliseconds of a
step.
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Experts(nn.Module):
    """GShard's top-2 routing, capacity 1.25 per sample."""

    def __init__(self, hidden, experts):
        super().__init__()
        self.experts = experts
        self.router = nn.Parameter(torch.empty(hidden, experts))
        self.fc1 = nn.Parameter(torch.empty(experts, hidden, 4 * hidden))
        self.fc2 = nn.Parameter(torch.empty(experts, 4 * hidden, hidden))

    def forward(self, x):
        (b, s, h), n = x.shape, self.experts
        capacity = -(-125 * 2 * s // (100 * n))
        logits = x @ self.router
        probs = logits.softmax(-1)
        gates, index = probs.topk(2, -1)
        gates = gates / gates.sum(-1, keepdim=True)
        with torch.no_grad():
            index = index.transpose(1, 2).reshape(b, 2 * s)  # first choices, then second ones
            chosen = F.one_hot(index, n)
            place = (chosen.cumsum(1).gather(2, index[..., None]) - 1).squeeze(-1)
            kept = place < capacity
            row = (index * b + torch.arange(b)[:, None]) * capacity + place
            row = torch.where(kept, row, n * b * capacity).reshape(-1)
            load = chosen[:, :s].to(x.dtype).mean(1)
        rows = x.new_zeros(n * b * capacity + 1, h).index_copy(0, row, x.repeat(1, 2, 1).view(-1, h))
        y = torch.bmm(rows[:-1].view(n, b * capacity, h), self.fc1)
        y = torch.bmm(F.gelu(y, approximate="tanh"), self.fc2)
        y = torch.cat([y.view(-1, h), y.new_zeros(1, h)]).index_select(0, row).view(b, 2, s, h)
        self.loss = (0.01 * n * (load * probs.mean(1)).sum(-1).mean() +
                     0.001 * logits.logsumexp(-1).square().mean())
        return (gates.transpose(1, 2)[..., None] * y).sum(1)


class Block(nn.Module):
    def __init__(self, hidden, heads, experts):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        if experts:
            self.experts = Experts(hidden, experts)
        else:
            self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, s, 3, self.heads, h // self.heads).unbind(2)
        a = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2),
                                           v.transpose(1, 2), is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, s, h))
        if hasattr(self, "experts"):
            return x + self.experts(self.ln2(x))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, hidden, heads, seq, vocab, experts):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, hidden), nn.Embedding(seq, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, experts * (i % 2 == 0)) for i in range(layers))
        self.ln = nn.LayerNorm(hidden)
        for p in self.parameters():
            nn.init.normal_(p, std=0.02) if p.dim() > 1 else None

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln(x), self.wte.weight)
        side = sum(b.experts.loss for b in self.blocks if hasattr(b, "experts"))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1)) + side


def main():
    layers, hidden, heads, seq, vocab, batch, threads, steps = map(int, sys.argv[1:9])
    experts = int(sys.argv[9]) if len(sys.argv) > 9 else 0
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = GPT(layers, hidden, heads, seq, vocab, experts)
    opt = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    ids = torch.randint(0, vocab, (batch, seq + 1))
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        loss.item()
        times.append(1e3 * (time.perf_counter() - start))
    times = sorted(times[2:])
    print(times[len(times) // 2])


main()
