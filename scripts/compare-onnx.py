#!/usr/bin/env python3
"""What torch.onnx.export writes of a model is that model for weft: same ops, same loss.

    $PYTHON scripts/compare-onnx.py [--bin BUILD/bin] [--fixtures DIR] [CASE...]

Needs PyTorch, onnx, onnxscript, transformers, safetensors and numpy; nothing is downloaded: models are small
and have random weights. The models are those of scripts/compare-pt2.py. Each is exported by torch.export as
its nodes are (plain) and with constants folded, which is the exporter's default (folded), and by the exporter
that traces (traced), where they can. weft-import must make a model of it, of the same kinds of op and as many
parameters as of the model's config.json, where there is a family for it. weft-run begins with the weights that
lie in the file, and its loss must be PyTorch's: of three steps of AdamW for plain, and of the first for the
others, which keep no weight that is tied as one; where the exporter has folded a table of positions for the
example's samples, there are no names for weights and the ops are compared alone. What weft has no op for must be refused with what the case
names.

With --fixtures only the models of the tests are written, without weights. Ends with status 1 if losses differ
by more than 1e-5, relative.
"""
import argparse
import collections
import contextlib
import importlib.util
import logging
import os
import re
import sys
import tempfile
import warnings

spec = importlib.util.spec_from_file_location("pt2", os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                                   "compare-pt2.py"))
spec.loader.exec_module(pt2 := importlib.util.module_from_spec(spec))
import numpy as np
import onnx
import onnx_by_hand
import torch
import transformers

CASES = ["gpt2", "llama", "llama-tied", "qwen2", "qwen3", "mistral-window", "gemma", "gemma2", "gemma3", "phi3-grouped",
         "neox", "falcon", "falcon-two", "falcon-new", "falcon-heads", "opt", "mixtral", "qwen3-moe", "bert", "vit", "t5", "t5-gated",
         "llama3", "olmo2", "granite", "stablelm", "starcoder2", "smollm3", "cohere", "cohere2", "nemotron", "gptj",
         "phi", "neox-part", "bloom", "mpt", "falcon-rw", "distilbert", "relative", "own-gpt", "own-parallel", "perceptron", "mixer", "unet"]
REFUSED = {"unet": "MaxPool.*Conv(Transpose)?.*Concat|MaxPool", "mixtral": "TopK", "qwen3-moe": "TopK",
           "t5 folded": "a parameter for each pair of positions", "t5-gated folded": "a parameter for each pair",
           "bloom folded": "a parameter for each pair of positions", "mpt folded": "a parameter for each pair",
           "mpt traced": "a norm whose bias is no parameter",
           "falcon-rw folded": "a parameter for each pair of positions"}
FORMS = {"plain": dict(dynamo=True, optimize=False), "folded": dict(dynamo=True, optimize=True),
         "whole": dict(dynamo=True, optimize=False, opset_version=23), "traced": dict(dynamo=False)}
BY_HAND = {"hand-perceptron": ("perceptron", onnx_by_hand.write_perceptron),
           "hand-mixer": ("mixer", onnx_by_hand.write_mixer),
           "hand-gpt": ("own-gpt", lambda *args: onnx_by_hand.write_gpt(*args, attention=False)),
           "hand-attention": ("own-gpt", lambda *args: onnx_by_hand.write_gpt(*args, attention=True))}
FIXTURES = {"gpt2": "plain", "llama": "folded", "mixer": "traced", "falcon": "plain"}


def for_tracing(model, inputs):
    """The exporter that traces makes an input of every argument, and cannot see that all tokens are there."""
    names = list(inputs) if isinstance(inputs, dict) else ["input_ids"]
    seen = {} if "decoder_input_ids" in names else {"attention_mask": torch.ones(pt2.BATCH, pt2.SEQ)}
    return lambda *args: type(model).forward(model, **dict(zip(names, args)), **seen, use_cache=False).logits


def export(model, inputs, form, path):
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else ((inputs,), None)
    model.eval()
    if form == "traced" and hasattr(model, "lm_head"):
        model.forward = for_tracing(model, inputs)
        args, kwargs = (tuple(inputs.values()) if kwargs else args), None
    try:
        with contextlib.redirect_stdout(None):  # on which it writes all of a graph that it cannot export
            torch.onnx.export(model, args, path, kwargs=kwargs, verbose=False, **FORMS[form])
    finally:
        model.__dict__.pop("forward", None)


def export_somehow(model, inputs, form, path):
    """What the exporter has no words for, such as grouped products of experts, models of transformers have in
    other words too. Returns which."""
    if not hasattr(model, "set_attn_implementation"):
        export(model, inputs, form, path)
        return ""
    kept = model.config._attn_implementation, getattr(model.config, "_experts_implementation", None)
    ways = {"": kept, " (eager)": ("eager", kept[1]), " (eager, batched_mm)": ("eager", "batched_mm")}
    failure = None
    for said, (attention, experts) in ways.items():
        with contextlib.suppress(Exception):  # few have several ways for experts
            model.set_attn_implementation(attention)
            model.set_experts_implementation(experts)
        try:
            export(model, inputs, form, path)
            return said
        except Exception as e:
            failure = failure or e
    raise failure


def compare_file(path, bin, folder, data, theirs, config):
    """Whether weft takes the file for the model, and what is said of it."""
    rc, document, err = pt2.run(f"{bin}/weft-import", "--weights", f"{folder}/model.safetensors", path)
    if rc:
        return False, err.strip()
    with open(f"{folder}/model.json", "w") as f:
        f.write(document)
    kinds = pt2.kinds(document)
    same = config is None or kinds == config
    if "no names for weights" in err:
        return same, "no names for weights" + ("" if config is None else ", ops as of config.json")
    ours = pt2.train(bin, folder, f"{folder}/model.json", data, 0.001)
    if not isinstance(ours, list):
        return False, ours.strip()
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
    return same and worst < pt2.LIMIT, (f"losses {worst:.1e}" + (
        "" if config is None else ", ops as of config.json" if same else f", OPS DIFFER {kinds} {config}"))


def compare_form(model, name, form, bin, folder, data, inputs, theirs, config):
    path = f"{folder}/{name.replace('-', '_')}_{form}.onnx"
    try:
        how = export_somehow(model, inputs, form, path)
    except Exception as e:
        return True, f"{form}: PyTorch cannot: {str(e).strip().splitlines()[-1][:60]}"
    refused = REFUSED.get(name) or REFUSED.get(f"{name} {form}")
    if refused:
        rc, _, err = pt2.run(f"{bin}/weft-import", path)
        return rc == 3 and bool(re.search(refused, err)), f"{form}: {err.strip().split('.onnx: ')[-1]}"
    good, text = compare_file(path, bin, folder, data, theirs, config)
    return good, f"{form}{how}: {text}"


def model_of(case):
    torch.manual_seed(1)
    model = case["make"]().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.08)
    return model


def losses_of(model, inputs, targets):
    kept = {k: v.clone() for k, v in model.state_dict().items()}
    losses = pt2.losses_of(model, inputs, targets, 0.001)
    model.load_state_dict(kept)
    return losses


def config_of(model, case, bin, folder):
    """The ops of the model's config.json; None where there is no family for it."""
    if not hasattr(model, "config") or "other_ops" in case:
        return None
    model.config.save_pretrained(folder)
    rc, config, _ = pt2.run(f"{bin}/weft-import", "-q", folder)
    config = collections.Counter(pt2.kinds(config)) if rc == 0 else None
    if config and "beside" in case:
        config.subtract(case["beside"])
    return config and {k: n for k, n in config.items() if n}


def compare(name, bin, folder):
    if name in BY_HAND:
        return compare_by_hand(name, bin, folder)
    case = pt2.CASES[name]
    model = model_of(case)
    data, inputs, targets = pt2.data_of(case, folder)
    config = None if case.get("plain") and "beside" not in case else config_of(model, case, bin, folder)
    theirs = [] if name in REFUSED else losses_of(model, inputs, targets)
    said, good = [], True
    for form in FORMS:
        well, text = compare_form(model, name, form, bin, folder, data, inputs, theirs, config)
        good &= well
        said.append(text)
    print(f"{name}: " + "; ".join(said), flush=True)
    return good


def compare_by_hand(name, bin, folder):
    case = pt2.CASES[BY_HAND[name][0]]
    model = model_of(case)
    data, inputs, targets = pt2.data_of(case, folder)
    BY_HAND[name][1](model, list(inputs.shape), f"{folder}/by_hand.onnx")
    good, text = compare_file(f"{folder}/by_hand.onnx", bin, folder, data, losses_of(model, inputs, targets), None)
    print(f"{name}: {text}", flush=True)
    return good


def slim(source, path, weights):
    """Without the numbers of weights, of which these have names, and without what is said for people."""
    model = onnx.load(source)
    for n in model.graph.node:
        scopes = [m for m in n.metadata_props if m.key == "pkg.torch.onnx.name_scopes"]
        del n.metadata_props[:]
        n.metadata_props.extend(scopes)
        n.doc_string = ""
    for m in (model, model.graph):
        del m.metadata_props[:]
    for t in model.graph.initializer:
        del t.metadata_props[:]
        if t.name in weights or len(t.raw_data) > 9000 and min(onnx.numpy_helper.to_array(t).ravel()) > -1e4:
            del t.float_data[:]
            t.ClearField("raw_data")
    for v in model.graph.value_info:
        del v.metadata_props[:]
    with open(path, "wb") as f:
        f.write(model.SerializeToString())


def fixtures(folder):
    for name, form in FIXTURES.items():
        torch.manual_seed(1)
        case = pt2.CASES[name]
        example = case["image"]() if "image" in case else torch.zeros(2, pt2.SEQ, dtype=torch.long)
        model = case["make"]()
        for p in model.parameters():
            torch.nn.init.normal_(p, std=0.08)
        with tempfile.TemporaryDirectory() as temporary:
            export(model, example, form, f"{temporary}/{name}.onnx")
            slim(f"{temporary}/{name}.onnx", f"{folder}/{name}.onnx", dict(model.named_parameters()))
    onnx_by_hand.write_folded(f"{folder}/folded.onnx")
    onnx_by_hand.write_gpt(pt2.GPT(width=16, heads=2, layers=1), [2, pt2.SEQ], f"{folder}/attention.onnx", attention=True)
    slim(f"{folder}/attention.onnx", f"{folder}/attention.onnx", {})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bin")
    parser.add_argument("--fixtures", metavar="DIR")
    parser.add_argument("cases", nargs="*", metavar="CASE", default=[*CASES, *BY_HAND])
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if args.fixtures:
        return fixtures(args.fixtures)
    good = True
    for name in args.cases:
        with tempfile.TemporaryDirectory() as folder:
            good &= compare(name, args.bin, folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
