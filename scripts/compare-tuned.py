#!/usr/bin/env python3
"""Fine-tuning with frozen parameters and with LoRA, beside PyTorch and PEFT.

    PYTHON=... ; $PYTHON scripts/compare-tuned.py [--bin BUILD/bin] [CASE...]

Needs PyTorch, transformers, PEFT and numpy; nothing is downloaded. Each case makes a small model with
transformers, which weft-import turns into one of which only a part is trained, by --freeze or --lora. Both
programs take five steps of AdamW from the same weights on the same batch; with LoRA from the same
adapters, none of whose matrices is zero, as PEFT saves them (--adapter). weft does it once more under
plans of two ranks: data parallel with ZeRO 2 and 3, tensor parallel, and a pipeline. Losses and
gradient norms must agree to 1e-5 of them.

With LoRA weft-ckpt then exports the adapters: PEFT loads the folder beside the same base model, and must
find the logits' loss with which weft's training goes on; and adapters that go in and out again without a
step must not change by a bit.
"""
import importlib
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import peft
import torch
import transformers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
other = importlib.import_module("compare-transformers")

STEPS, LR = 5, 0.003
LLAMA = dict(layers=3, hidden=64, heads=4, kv_heads=2, ffn=96, seq=16, vocab=130, tied=0)
GPT2 = dict(layers=2, hidden=64, heads=4, seq=16, vocab=130, tied=1)


def lora(rank, alpha, names, on):
    """PEFT's names of the modules, and weft's patterns of the same."""
    return dict(lora=peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=names),
                options=["--lora", f"{rank}:{alpha}", *(["--lora-on", on] if on else [])])


CASES = {
    "llama-half": dict(make=other.llama, sizes=LLAMA, options=["--freeze", "wte layer.0-1"],
                       frozen=("model.embed_tokens.", "model.layers.0.", "model.layers.1.")),
    "gpt2-biases": dict(make=other.gpt2, sizes=GPT2,
                        options=["--freeze", "* !layer.*.*.bias !ln.bias"],
                        trained=".bias"),
    "llama-lora": dict(make=other.llama, sizes=LLAMA,
                       **lora(4, 12, ["q_proj", "v_proj"], "layer.*.q layer.*.v")),
    "llama-lora-all": dict(make=other.llama, sizes=dict(LLAMA, tied=1),
                           **lora(2, 6, "all-linear", None)),
    "gpt2-lora": dict(make=other.gpt2, sizes=GPT2,
                      **lora(8, 8, ["c_attn", "mlp.c_proj", "c_fc"],
                             "layer.*.qkv layer.*.fc1 layer.*.fc2")),
}
PLANS = {
    "ZeRO 2": {"mesh": "dp:2", "layout": {"dp": ["batch"]}, "zero": 2},
    "ZeRO 3": {"mesh": "dp:2", "layout": {"dp": ["batch"]}, "zero": 3, "recompute": "all"},
    "tensors": {"mesh": "tp:2", "layout": {"tp": ["heads", "kv_heads", "ffn", "vocab"]}},
    "hidden": {"mesh": "tp:2", "layout": {"tp": ["hidden", "lora"]}},
    "pipeline": None,
}


class Weft:
    def __init__(self, bin, folder, case, data):
        self.bin, self.folder, self.data = bin, folder, data
        with open(self.path("plan.json"), "w") as f:
            other.run([f"{bin}/weft-import", "-q", *case["options"], "-o", self.path("model.json"),
                       self.path("base")])
            self.model = json.load(open(self.path("model.json")))
            json.dump(self.plan({"stages": [{}]}), f)

    def path(self, name):
        return os.path.join(self.folder, name)

    def plan(self, stages):
        return {"format": "weft-plan/1", "model": self.model, "batch": other.BATCH, **stages}

    def train(self, steps, *options, plan="plan.json", ranks=1):
        """The metrics of each step. An epoch of the data is one batch."""
        start = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
        lines = other.run([*(start if ranks > 1 else []), f"{self.bin}/weft-run", "-q", "--threads",
                           "1", "-n", str(steps), "--data", self.data, "--validation", "0", "--lr",
                           str(LR), "--decay", "constant", "--warmup", "0", *options,
                           self.path(plan)])
        return [json.loads(line) for line in lines.splitlines()]

    def under(self, name, options):
        front = [op["name"] for op in self.model["ops"] if op["name"] in ("wte", "wpe")]
        stage, stages = PLANS[name], [{"ops": [*front, "layer.0"]}, {}]
        if stage:
            known = {"batch", *self.model["sizes"]}
            stages = [{**stage, "layout": {axis: [dim for dim in dims if dim in known]
                                           for axis, dims in stage["layout"].items()}}]
        plan = self.plan({"stages": stages, "micro_batch": 4})
        with open(self.path("other.json"), "w") as f:
            json.dump(plan, f)
        return self.train(STEPS, *options, plan="other.json", ranks=2)


def train(model, inputs, targets):
    """Losses and norms of each step, as weft-run's defaults have them."""
    weights = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in weights if (p.dim() >= 2) == on], "weight_decay": 0.1 * on}
              for on in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)
    out = []
    for _ in range(STEPS):
        out.append(other.evaluate(model, inputs, targets))
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
    return out


def worst(ours, theirs):
    return max(other.differ(a, b) for a, b in zip(ours, theirs, strict=True))


def adapted(model, case, weft):
    """The model with adapters that are saved, and exported again after no step."""
    tuned = peft.get_peft_model(model, case["lora"])
    for name, p in tuned.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(p, std=0.05)
    tuned.save_pretrained(weft.path("adapter"))
    return tuned


def exported(weft, checkpoint, name):
    other.run([f"{weft.bin}/weft-ckpt", "export", "-q", "-o", weft.path(name), weft.path(checkpoint)])
    return weft.path(name)


def same_tensors(a, b):
    (a, b) = (peft.utils.load_peft_weights(folder, device="cpu") for folder in (a, b))
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def compare(name, case, bin, folder):
    data, inputs, targets = other.tokens(folder, case["sizes"], np.random.default_rng(7))
    torch.manual_seed(1)
    model = case["make"](case["sizes"])
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.08)
    model.save_pretrained(os.path.join(folder, "base"))
    weft = Weft(bin, folder, case, data)
    for key, p in model.named_parameters():
        p.requires_grad = key.endswith(case["trained"]) if "trained" in case \
            else not key.startswith(case.get("frozen", ()))
    options = ["--init", weft.path("base")]
    exact, found = True, {}
    if "lora" in case:
        model = adapted(model, case, weft)
        options += ["--adapter", weft.path("adapter")]
        weft.train(1, "--lr", "0", "--save", weft.path("untouched"), *options)
        exact = same_tensors(weft.path("adapter"), exported(weft, "untouched", "again"))
    theirs = train(model, inputs, targets)
    ours = weft.train(STEPS, "--save", weft.path("trained"), *options)
    found["alone"] = worst(ours, theirs)
    for plan in PLANS:
        found[plan] = worst(weft.under(plan, options), theirs)
    if "lora" in case:
        base = type(model.get_base_model()).from_pretrained(weft.path("base"))
        back = peft.PeftModel.from_pretrained(base, exported(weft, "trained", "exported"))
        for key, p in back.named_parameters():
            p.requires_grad = ".lora_" in key
        resumed = weft.train(STEPS + 1, "--resume", weft.path("trained"))[0]
        found["out"] = other.differ(resumed, other.evaluate(back, inputs, targets))
    print(f"{name}: {'' if exact else 'adapters CHANGED on their way; '}" +
          ", ".join(f"{what} {x:.1e}" for what, x in found.items()))
    return exact and max(found.values()) < other.LIMIT


if __name__ == "__main__":
    sys.exit(other.run_cases(__doc__, CASES, compare))
