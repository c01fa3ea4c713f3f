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
import safetensors.numpy
import torch
import transformers

CASES = ["gpt2", "llama", "llama-tied", "qwen3", "mistral-window", "gemma", "phi3-grouped", "bert", "vit", "own-gpt", "own-parallel",
         "perceptron", "mixer", "unet"]
REFUSED = {"unet": "MaxPool.*Conv(Transpose)?.*Concat|MaxPool"}
FORMS = {"plain": dict(dynamo=True, optimize=False), "folded": dict(dynamo=True, optimize=True),
         "traced": dict(dynamo=False)}
FIXTURES = {"gpt2": "plain", "llama": "folded", "mixer": "traced"}


def export(model, inputs, form, path):
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else ((inputs,), None)
    torch.onnx.export(model.eval(), args, path, kwargs=kwargs, verbose=False, **FORMS[form])


def weights_of(path, folder):
    """What is a real number in the file, under its names there."""
    tensors = {}
    for t in onnx.load(path).graph.initializer:
        a = onnx.numpy_helper.to_array(t)
        if a.dtype == np.float32 and a.ndim:
            tensors[t.name] = np.ascontiguousarray(a)
    safetensors.numpy.save_file(tensors, f"{folder}/model.safetensors")


def compare_form(model, name, form, bin, folder, data, inputs, targets, theirs, config):
    path = f"{folder}/{name.replace('-', '_')}_{form}.onnx"
    try:
        export(model, inputs, form, path)
    except Exception as e:
        return True, f"{form}: PyTorch cannot: {str(e).strip().splitlines()[-1][:60]}"
    rc, document, err = pt2.run(f"{bin}/weft-import", path)
    if name in REFUSED:
        return rc == 3 and bool(re.search(REFUSED[name], err)), f"{form}: {err.strip().split('.onnx: ')[-1]}"
    if rc:
        return False, f"{form}: {err.strip()}"
    with open(f"{folder}/model.json", "w") as f:
        f.write(document)
    weights_of(path, folder)
    kinds = pt2.kinds(document)
    if form == "folded":  # an exporter that folds makes copies of weights that are tied
        theirs = theirs[:1]
    same = config is None or kinds == config
    if "no names for weights" in err:
        return same, f"{form}: no names for weights" + ("" if config is None else ", ops as of config.json")
    ours = pt2.train(bin, folder, f"{folder}/model.json", data, 0.001)
    if not isinstance(ours, list):
        return False, f"{form}: {ours.strip()}"
    theirs = theirs if form == "plain" else theirs[:1]
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
    return same and worst < pt2.LIMIT, (f"{form}: {len(theirs)} losses {worst:.1e}" + (
        "" if config is None else ", ops as of config.json" if same else f", OPS DIFFER {kinds} {config}"))


def compare(name, bin, folder):
    torch.manual_seed(1)
    case = pt2.CASES[name]
    model = case["make"]().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.08)
    data, inputs, targets = pt2.data_of(case, folder)
    config, said, good, theirs = None, [], True, [1.0] * pt2.STEPS
    if hasattr(model, "config") and "other_ops" not in case and "plain" not in case:
        model.config.save_pretrained(folder)
        rc, config, _ = pt2.run(f"{bin}/weft-import", "-q", folder)
        config = pt2.kinds(config) if rc == 0 else None
    if name not in REFUSED:
        kept = {k: v.clone() for k, v in model.state_dict().items()}
        theirs = pt2.losses_of(model, inputs, targets, 0.001)
        model.load_state_dict(kept)
    for form in FORMS:
        well, text = compare_form(model, name, form, bin, folder, data, inputs, targets, theirs, config)
        good &= well
        said.append(text)
    print(f"{name}: " + "; ".join(said), flush=True)
    return good


def slim(source, path):
    """Without the numbers of weights, and without what is said for people."""
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
        if "." in t.name or len(t.raw_data) > 9000 and min(onnx.numpy_helper.to_array(t).ravel()) > -1e4:
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
            slim(f"{temporary}/{name}.onnx", f"{folder}/{name}.onnx")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bin")
    parser.add_argument("--fixtures", metavar="DIR")
    parser.add_argument("cases", nargs="*", metavar="CASE", default=CASES)
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
