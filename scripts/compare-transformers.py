#!/usr/bin/env python3
"""Weights go both ways between weft and Hugging Face's transformers, with the same loss.

    PYTHON=... ; $PYTHON scripts/compare-transformers.py [--bin BUILD/bin] [CASE...]

Needs PyTorch, transformers and numpy; neither is needed for anything else, and nothing is
downloaded: the models have random weights. Each case makes a small model with transformers, saves
it, and evaluates it on one batch. weft-run begins with these weights (--init) and must find the
same loss and the same norm of the gradient; it trains a few steps and saves. weft-ckpt exports the
checkpoint, from_pretrained reads the folder, and must find the loss with which the training goes
on. Both once more in bf16, where both programs read rounded weights, and in several files.

Prints per case the relative differences. Ends with status 1 if one is beyond 1e-5, or a weight that
goes in and out again without a step has changed by a bit.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch
import torch.nn.functional as F
import transformers

LIMIT = 1e-5
BATCH = 8


def gpt2(sizes):
    config = transformers.GPT2Config(
        vocab_size=sizes["vocab"], n_positions=sizes["seq"], n_embd=sizes["hidden"],
        n_layer=sizes["layers"], n_head=sizes["heads"], resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=0, eos_token_id=0, tie_word_embeddings=bool(sizes["tied"]))
    return transformers.GPT2LMHeadModel(config)


CASES = {
    "gpt2": dict(make=gpt2, model="gpt:nano",
                 sizes=dict(layers=3, hidden=96, heads=6, seq=48, vocab=300, tied=1)),
    "gpt2-untied": dict(make=gpt2, model="gpt:nano",
                        sizes=dict(layers=2, hidden=64, heads=2, seq=32, vocab=129, tied=0)),
}


def evaluate(model, ids, seq):
    """Loss and norm of its gradient, in fp32."""
    x = torch.tensor(ids[:-1].reshape(BATCH, seq))
    y = torch.tensor(ids[1:].reshape(BATCH, seq))
    model.float().eval().zero_grad()
    loss = F.cross_entropy(model(input_ids=x).logits.flatten(0, 1), y.flatten())
    loss.backward()
    norm = sum(float((p.grad ** 2).sum()) for p in model.parameters() if p.grad is not None)
    return loss.item(), norm ** 0.5


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


class Weft:
    def __init__(self, bin, folder, case):
        self.bin, self.folder, self.case = bin, folder, case
        self.set = ",".join(f"{k}={v}" for k, v in case["sizes"].items())
        plan = {"format": "weft-plan/1", "model": case["model"], "set": self.set, "batch": BATCH,
                "stages": [{}]}
        with open(self.path("plan.json"), "w") as f:
            json.dump(plan, f)

    def path(self, name):
        return os.path.join(self.folder, name)

    def train(self, steps, *options):
        """The metrics of each step. An epoch of the data is one batch."""
        lines = run([f"{self.bin}/weft-run", "-q", "-n", str(steps), "--data",
                     self.path("tokens.bin"), "--validation", "0", *options, self.path("plan.json")])
        return [json.loads(line) for line in lines.splitlines()]

    def export(self, checkpoint, name):
        run([f"{self.bin}/weft-ckpt", "export", "-q", "-m", self.case["model"], "--set", self.set,
             "-o", self.path(name), self.path(checkpoint)])
        return self.path(name)


def differ(a, b):
    return abs(a - b) / abs(b)


def compare(name, case, bin, folder):
    seq = case["sizes"]["seq"]
    rng = np.random.default_rng(7)
    ids = np.cumsum(rng.integers(0, 5, BATCH * seq + 1)) % case["sizes"]["vocab"]
    weft = Weft(bin, folder, case)
    ids.astype("<u2").tofile(weft.path("tokens.bin"))
    torch.manual_seed(1)
    model = case["make"](case["sizes"])
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.08)
    differences = {}

    def same(what, folder, model):
        loss, norm = evaluate(model, ids, seq)
        step = weft.train(1, "--lr", "0", "--init", folder)[0]
        differences[what] = max(differ(step["loss"], loss), differ(step["grad_norm"], norm))

    saved = weft.path("transformers")
    model.save_pretrained(saved)
    same("in", saved, model)
    model.save_pretrained(weft.path("sharded"), max_shard_size="100KB")
    assert os.path.exists(weft.path("sharded/model.safetensors.index.json"))
    same("in, several files", weft.path("sharded"), model)
    weft.train(3, "--lr", "0.003", "--init", saved, "--save", weft.path("trained"))
    back = type(model).from_pretrained(weft.export("trained", "exported"))
    resumed = weft.train(4, "--resume", weft.path("trained"))[0]
    loss, norm = evaluate(back, ids, seq)
    differences["out"] = max(differ(resumed["loss"], loss), differ(resumed["grad_norm"], norm))
    weft.train(1, "--lr", "0", "--init", saved, "--save", weft.path("untouched"))
    again = type(model).from_pretrained(weft.export("untouched", "again"))
    exact = all(torch.equal(p, q) for p, q in zip(model.state_dict().values(),
                                                  again.state_dict().values()))
    model.bfloat16().save_pretrained(weft.path("bf16"))
    same("in, bf16", weft.path("bf16"), model)
    print(f"{name}: in and out again {'exact' if exact else 'DIFFERENT'}; " +
          ", ".join(f"{what} {x:.1e}" for what, x in differences.items()))
    return exact and max(differences.values()) < LIMIT


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bin")
    parser.add_argument("cases", nargs="*", metavar="CASE", default=list(CASES))
    args = parser.parse_args()
    unknown = [name for name in args.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]} (there are: {' '.join(CASES)})")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    good = True
    for name in args.cases:
        with tempfile.TemporaryDirectory() as folder:
            good &= compare(name, CASES[name], args.bin, folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
