#!/usr/bin/env python3
"""From text to Hugging Face: trains on real text, samples, exports, and lets transformers go on.

    PYTHON scripts/real-export.py BUILD TEXT [SECONDS]

Trains MODEL (gpt:gpt2, 124M parameters) with SET (seq=256) on the bytes of TEXT but for its last tenth, BATCH
(8) samples a step, for SECONDS (600) on the CPU. weft-sample goes on greedily behind some pieces of the last
tenth; weft-ckpt exports the checkpoint; transformers reads the folder and goes on behind the same pieces, and
so does weft-sample from the folder. Prints the losses and one of the continuations, and ends with status 1
where one of them differs in a token. Needs PyTorch and transformers; nothing is downloaded.
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
MODEL, SET = os.environ.get("MODEL", "gpt:gpt2"), os.environ.get("SET", "seq=256")
BATCH = int(os.environ.get("BATCH", "8"))
PROMPTS, GIVEN, NEW = 8, 32, 64


def tool(build, name, *args, text=""):
    done = subprocess.run([f"{build}/bin/weft-{name}", "-q", *args], input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"weft-{name} {' '.join(args)}: {done.stderr}")
    return done.stdout


def train(build, plan, *args):
    out = tool(build, "run", "--lr", "6e-4", "--validation", "0.1", *args, plan)
    return [x for x in map(json.loads, out.splitlines()) if "loss" in x]


def sampled(build, source, prompts):
    ids = "".join(" ".join(map(str, p)) + "\n" for p in prompts)
    out = tool(build, "sample", "--ids", "--temperature", "0", "-n", str(NEW), source, text=ids)
    return [[int(t) for t in line.split()][-NEW:] for line in out.splitlines()]


def generated(folder, prompts):
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).float().eval()
    out = []
    for p in prompts:
        ids = torch.tensor([p])
        out.append(model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                  max_new_tokens=NEW, pad_token_id=0, eos_token_id=None)[0, len(p):].tolist())
    return out, sum(p.numel() for p in model.parameters())


def main():
    build, text = sys.argv[1:3]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 600
    kept = open(text, "rb").read()
    kept = kept[len(kept) * 9 // 10:]
    prompts = [list(kept[i * len(kept) // PROMPTS:][:GIVEN]) for i in range(PROMPTS)]
    with tempfile.TemporaryDirectory() as work:
        plan = f"{work}/plan.json"
        with open(plan, "w", encoding="ascii") as f:
            json.dump({"format": "weft-plan/1", "model": MODEL, "set": SET, "batch": BATCH, "micro_batch": BATCH,
                       "stages": [{}]}, f)
        trial = train(build, plan, "--data", text, "-n", "3")
        steps = max(10, int(1e3 * seconds / trial[-1]["step_ms"]))
        losses = [x["loss"] for x in train(build, plan, "--data", text, "-n", str(steps), "--save", f"{work}/run")]
        tool(build, "ckpt", "export", "-o", f"{work}/export", f"{work}/run")
        ours = sampled(build, f"{work}/run", prompts)
        back = sampled(build, f"{work}/export", prompts)
        theirs, parameters = generated(f"{work}/export", prompts)
    tenth = max(1, len(losses) // 10)
    print(f"{MODEL} ({SET}): {parameters} parameters, {steps} steps of {BATCH} samples: loss {losses[0]:.3f} at "
          f"first, {sum(losses[-tenth:]) / tenth:.3f} in the last tenth")
    print(bytes(prompts[1]).decode("utf-8", "replace"), "->", repr(bytes(t & 255 for t in ours[1]).decode("utf-8", "replace")))
    same = sum(a == b == c for a, b, c in zip(ours, back, theirs))
    kinds = len({t for x in ours for t in x})
    print(f"{same} of {PROMPTS} continuations of {NEW} tokens ({kinds} different ones) are the same: weft-sample of "
          "the checkpoint, of the export, transformers of the export")
    sys.exit(same != PROMPTS)


if __name__ == "__main__":
    main()
