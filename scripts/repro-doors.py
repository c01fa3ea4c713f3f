#!/usr/bin/env python3
"""The table of families and doors: what was compared with what nobody here wrote, and how far it was off.

    $PYTHON scripts/repro-doors.py [--bin BUILD/bin] [FAMILY...]

Needs what the scripts need that it runs: compare-transformers.py, compare-pt2.py, compare-onnx.py,
compare-hlo.py and compare-generate.py. Beside them it imports each family through its config.json, as a
program of torch.export and as a model of ONNX, and counts: parameters must be as many as the class of
transformers has, and kinds of ops, parameters and flops the same through all doors.

Writes a table in Markdown; a cell is the largest relative difference of losses (of bits, where weights go in
and out again), "same", or a dash where the door has no such family. Ends with status 1 if a cell is wrong.
"""
import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))


def load(name):
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), os.path.join(here, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPTS = ("compare-transformers", "compare-pt2", "compare-onnx", "compare-generate", "compare-hlo")
FAMILIES = {  # cases of the scripts, in their order
    "GPT-2": ("gpt2", "gpt2", "gpt2", "gpt2", "gpt"), "Llama": ("llama", "llama", "llama", "llama", "llama"),
    "Llama 3, scaled": ("llama3",) * 4 + (None,),
    "Mistral, window": ("mistral", "mistral-window", "mistral-window", "mistral", None),
    "Mixtral": ("mixtral", "mixtral", None, "mixtral", None), "Qwen2": ("qwen2",) * 4 + (None,),
    "Qwen3": ("qwen3",) * 4 + (None,), "Qwen3-MoE": ("qwen3-moe", "qwen3-moe", None, "qwen3-moe", None),
    "Qwen2-MoE": ("qwen2-moe", "qwen2-moe", None, "qwen2-moe", None), "Gemma": ("gemma",) * 4 + (None,),
    "Gemma 2": ("gemma2",) * 4 + (None,), "Gemma 3": ("gemma3",) * 4 + (None,),
    "Phi-2": ("phi",) * 4 + (None,), "Phi-3": ("phi3", "phi3-grouped", "phi3-grouped", "phi3", None),
    "GPT-NeoX": ("gpt-neox", "neox", "neox", "gpt-neox", None), "GPT-J": ("gptj",) * 4 + (None,),
    "OPT": ("opt",) * 4 + (None,), "Falcon": ("falcon",) * 4 + (None,), "Falcon, new": ("falcon-new",) * 4 + (None,),
    "Falcon, ALiBi": ("falcon-rw",) * 4 + (None,), "BLOOM": ("bloom",) * 4 + (None,),
    "OLMo-2": ("olmo2",) * 4 + (None,), "OLMoE": ("olmoe", "olmoe", None, "olmoe", None),
    "Granite": ("granite",) * 4 + (None,), "StableLM": ("stablelm",) * 4 + (None,),
    "Starcoder2": ("starcoder2",) * 4 + (None,),
    "SmolLM3": ("smollm3",) * 4 + (None,), "Cohere": ("cohere",) * 4 + (None,),
    "Cohere 2": ("cohere2",) * 4 + (None,), "Nemotron": ("nemotron",) * 4 + (None,),
    "DeepSeek-V2": ("deepseek-v2", None, None, "deepseek-v2", None),
    "DeepSeek-V3": ("deepseek-v3", None, None, "deepseek-v3", None),
    "BERT": ("bert", "bert", "bert", None, None), "RoBERTa": ("roberta", None, None, None, None),
    "DistilBERT": ("distilbert",) * 3 + (None, None), "ViT": ("vit", "vit", "vit", None, None),
    "T5": ("t5",) * 4 + (None,), "T5 1.1": ("t5-gated",) * 4 + (None,),
    "BART": ("bart", "bart", None, "bart", None),
}
FIGURE = r"\d\.\de-\d+"


def lines_of(script, cases, bin):
    """What the script says of each case, and whether it was content."""
    if not cases:
        return {}, True  # it would take all of its own
    done = subprocess.run([sys.executable, os.path.join(here, script + ".py"), "--bin", bin, *cases],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    said = {line.split(": ")[0]: line for line in done.stdout.splitlines() if line.split(": ")[0] in cases}
    for case in cases:
        print(f"{script}: {said.get(case, case + ': said nothing')}", file=sys.stderr, flush=True)
    return said, done.returncode == 0


def cell(line):
    """The worst figure of a line, or what is wrong there."""
    if line is None or re.search("DIFFER|error|: error", line):
        return "wrong"
    figures = [float(x) for part in re.split("[;,]", line) if "PyTorch cannot" not in part
               for x in re.findall(FIGURE, part.split("weights after")[0])]
    return f"{max(figures):.0e}" if figures else "same" if "equal" in line else "wrong"


class Counts:
    """Kinds of ops, parameters and flops of a model that came through a door."""
    def __init__(self, bin, pt2, folder):
        self.bin, self.pt2, self.folder = bin, pt2, folder

    def of(self, source):
        rc, document, err = self.pt2.run(f"{self.bin}/weft-import", source)
        if rc:
            return err.strip()
        sizes = json.loads(document)["sizes"]
        lengths = [f"{s}={self.pt2.SEQ}" for s in ("seq", "target_seq") if s in sizes]
        with open(f"{self.folder}/counted.json", "w") as f:
            f.write(document)
        with open(f"{self.folder}/counted-plan.json", "w") as f:
            json.dump({"format": "weft-plan/1", "model": f"{self.folder}/counted.json", "batch": self.pt2.BATCH,
                       "set": ",".join(lengths), "stages": [{}]}, f)
        rc, out, why = self.pt2.run(f"{self.bin}/weft-predict", "-q", "--cluster", "h100:1",
                                    f"{self.folder}/counted-plan.json")
        if rc:
            return why.strip()
        return (self.pt2.kinds(document), int(re.search(r"(\d+) parameters", err)[1]), json.loads(out)["flops"])


def counted(pt2, onnx, names, bin):
    """What each door has, and PyTorch's parameters; None where a family has no program to count."""
    case = pt2.CASES.get(names[1])
    if not case:
        return None
    with tempfile.TemporaryDirectory() as folder:
        model = case["make"]().eval()
        data, inputs, targets = pt2.data_of(case, folder)
        model.config.save_pretrained(folder)
        counts, theirs = Counts(bin, pt2, folder), sum(p.numel() for p in model.parameters())
        pt2.export(model, inputs, False, f"{folder}/whole.pt2")
        found = {"config.json": counts.of(folder), ".pt2": counts.of(f"{folder}/whole.pt2")}
        if names[2] in onnx.CASES:
            onnx.export_somehow(model, inputs, "plain", f"{folder}/plain.onnx")
            found["ONNX"] = counts.of(f"{folder}/plain.onnx")
    return found, theirs


def same(found, case):
    """What differs. Kinds of ops are compared where the scripts do: others have a bias for a row of a table."""
    for counts in found.values():
        if isinstance(counts, str):
            return counts
    first, *others = found.values()
    for counts in others:
        if counts[1:] != first[1:]:
            return f"parameters and flops {[c[1:] for c in found.values()]}"
        if counts[0] != first[0] and "plain" not in case and "other_ops" not in case:
            return f"kinds {[c[0] for c in found.values()]}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bin")
    parser.add_argument("families", nargs="*", metavar="FAMILY", default=list(FAMILIES), help="all, unless some are named")
    args, good = parser.parse_args(), True
    bin, families = args.bin, {name: cases for name, cases in FAMILIES.items() if name in args.families}
    if len(families) < len(set(args.families)):
        parser.error(f"the families are {', '.join(FAMILIES)}")
    pt2, onnx = load("compare-pt2"), load("compare-onnx")
    rows = {name: [] for name in families}
    scripts = concurrent.futures.ThreadPoolExecutor(1)  # one runs while models are counted here
    asked = []
    for column, script in enumerate(SCRIPTS):
        known = load(script).CASES if script != "compare-generate" else load("compare-transformers").CASES
        cases = [n[column] for n in families.values() if n[column] in known]
        asked.append((cases, scripts.submit(lines_of, script, cases, bin)))
    for name, names in families.items():
        found = counted(pt2, onnx, names, bin)
        if found is None:
            rows[name] += ["–", "–"]
            continue
        found, theirs = found
        wrong = same(found, pt2.CASES[names[1]])
        print(f"{name}: {wrong or found['config.json'][1:]}, PyTorch {theirs}", file=sys.stderr, flush=True)
        right = not wrong and found[".pt2"][1] == theirs
        good &= right
        rows[name] += [", ".join(found) if right else "wrong", f"{theirs:,}"]
    for column, (cases, answer) in enumerate(asked):
        said, content = answer.result()
        good &= content
        for name, names in families.items():
            rows[name].append(cell(said.get(names[column])) if names[column] in cases else "–")
            good &= rows[name][-1] != "wrong"
    print("| family | ops, parameters, flops the same | parameters | weights and losses | .pt2 | ONNX | text | HLO |")
    print("|---|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | " + " | ".join(row) + " |")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
