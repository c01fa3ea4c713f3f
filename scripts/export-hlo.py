#!/usr/bin/env python3
"""Lower a JAX function for weft-import, and write its parameters as safetensors.

    export-hlo.py mine.py:make OUT.hlo [--weights OUT.safetensors]

make() gives (function, (parameters, example inputs, ...)): the function gives logits or a loss. Arrays
may be jax.ShapeDtypeStruct where no weights are written. The example has a batch of 2 or more. Layers
that jax.lax.scan goes over are written one by one, as weft-import names them. Tried with JAX 0.10.2."""
import argparse, importlib.util, json, re
import jax
import numpy as np


def path_of(keys):
    """['blocks'][0]['w'] is blocks.0.w; layers_3 is layers.3."""
    path = re.sub(r"[\[\]'\". ]+", ".", jax.tree_util.keystr(keys)).strip(".")
    return re.sub(r"(?<=[A-Za-z])_(?=\d+(\.|$))", ".", path)


def tensors(function, args):
    """The parameters by name, those of a scan as one for each of its turns."""
    leaves = jax.tree_util.tree_flatten_with_path(args[0])[0]
    jaxpr = jax.make_jaxpr(function)(*args).jaxpr
    stacks = {v for e in jaxpr.eqns if e.primitive.name == "scan"
              for v in e.invars[e.params["num_consts"] + e.params["num_carry"]:] if not hasattr(v, "val")}
    for (keys, leaf), var in zip(leaves, jaxpr.invars):
        first, dot, rest = path_of(keys).partition(".")
        for i in range(len(leaf)) if var in stacks else [None]:
            name = first + dot + rest if i is None else f"{first}.{i}.{rest}" if dot else f"layers.{i}.{first}"
            yield name, np.asarray(leaf if i is None else leaf[i], np.float32)


def export(function, args, out, weights=None):
    module = jax.jit(function).lower(*args).compiler_ir("hlo")
    with open(out, "wb") as f:
        f.write(module.as_serialized_hlo_module_proto())
    if weights:
        named, at, head = dict(tensors(function, args)), 0, {}
        for name, a in named.items():
            head[name] = {"dtype": "F32", "shape": a.shape, "data_offsets": [at, at + a.nbytes]}
            at += a.nbytes
        text = json.dumps(head).encode()
        with open(weights, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in named.values()))


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model"), a.add_argument("out"), a.add_argument("--weights", metavar="FILE")
    o = a.parse_args()
    path, name = o.model.rsplit(":", 1)
    spec = importlib.util.spec_from_file_location("mine", path)
    spec.loader.exec_module(mine := importlib.util.module_from_spec(spec))
    export(*getattr(mine, name)(), o.out, o.weights)
