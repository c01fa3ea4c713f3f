#!/usr/bin/env python3
"""Export a model for weft-import: a config.json of transformers, or a module of your own.

    export-pt2.py FOLDER|config.json OUT.pt2      a Hugging Face model, with random weights
    export-pt2.py mine.py:make OUT.pt2            make() gives (module, (example inputs, ...))

The example has a batch of 2 or more. Tried with PyTorch 2.15 and transformers 5.24."""
import argparse, importlib.util, json, os, zipfile
import torch

a = argparse.ArgumentParser()
a.add_argument("model"), a.add_argument("out")
a.add_argument("--seq", type=int, default=128, help="positions of the example")
a.add_argument("--decompose", action="store_true", help="into core ATen ops")
a.add_argument("--weights", action="store_true", help="keep them; weft-import reads none")
o = a.parse_args()
if ":" in o.model:
    path, name = o.model.rsplit(":", 1)
    spec = importlib.util.spec_from_file_location("mine", path)
    spec.loader.exec_module(mine := importlib.util.module_from_spec(spec))
    (model, args), kwargs = getattr(mine, name)(), {}
else:
    import transformers
    config = transformers.AutoConfig.from_pretrained(o.model, use_cache=False)
    kind = (config.architectures or [None])[0]
    kind = getattr(transformers, kind) if kind else transformers.AutoModelForCausalLM
    model = kind._from_config(config) if hasattr(kind, "_from_config") else kind.from_config(config)
    ids, args = torch.zeros(2, o.seq, dtype=torch.long), ()
    kwargs = {"input_ids": ids} | ({"decoder_input_ids": ids} if config.is_encoder_decoder else {})
    if hasattr(config, "image_size"):
        kwargs = {"pixel_values": torch.zeros(2, 3, config.image_size, config.image_size)}
program = torch.export.export(model.train(), args, kwargs, strict=False)
torch.export.save(program.run_decompositions() if o.decompose else program, o.out + ".all.pt2")
with zipfile.ZipFile(o.out + ".all.pt2") as full, zipfile.ZipFile(o.out, "w") as out:
    listed = json.loads(full.read(next(e for e in full.namelist() if "_weights_config" in e)))["config"]
    large = {w["path_name"] for w in listed.values() if w["is_param"] and not o.weights}
    for e in full.namelist():
        if e.split("/")[-1] not in large and "sample_inputs" not in e:
            out.writestr(e, full.read(e))
os.remove(o.out + ".all.pt2")
