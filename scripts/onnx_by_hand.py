"""Models of ONNX that no exporter wrote: node by node, as people write them with onnx.helper.

    write_gpt(model, (4, 24), "gpt.onnx", attention=True)

The modules are those of scripts/compare-pt2.py. Weights have names of their own and lie as each op wants them; no
shape is said but that of the input and of the result, and no node says which module it is of.
"""
import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Graph:
    """Nodes and tensors, in their order."""
    def __init__(self):
        self.nodes, self.tensors, self.count = [], [], 0

    def tensor(self, array, name=None):
        self.count += 1
        name = name or f"c{self.count}"
        if not any(t.name == name for t in self.tensors):
            array = array.detach().numpy() if hasattr(array, "detach") else array
            self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def number(self, value):
        return self.tensor(np.array(value, np.float32))

    def ints(self, *values):
        return self.tensor(np.array(values, np.int64))

    def node(self, op, *inputs, outputs=1, **attributes):
        self.count += 1
        out = [f"y{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), out, **attributes))
        return out if outputs > 1 else out[0]

    def linear(self, x, layer, name):
        """x W + b, of tensors of any rank."""
        y = self.node("MatMul", x, self.tensor(layer.weight.T, f"{name}_w"))
        return y if layer.bias is None else self.node("Add", y, self.tensor(layer.bias, f"{name}_b"))

    def gemm(self, x, layer, name, rows):
        """The same of rows, by Gemm."""
        x = self.node("Reshape", x, self.ints(rows, layer.in_features))
        return self.node("Gemm", x, self.tensor(layer.weight, f"{name}_w"), self.tensor(layer.bias, f"{name}_b"),
                         transB=1)

    def norm(self, x, layer, name):
        return self.node("LayerNormalization", x, self.tensor(layer.weight, f"{name}_g"),
                         self.tensor(layer.bias, f"{name}_b"), axis=-1, epsilon=layer.eps)

    def gelu(self, x):
        """Of versions that have no op for it."""
        cube = self.node("Mul", self.node("Pow", x, self.number(3)), self.number(0.044715))
        inner = self.node("Mul", self.node("Add", x, cube), self.number(math.sqrt(2 / math.pi)))
        gate = self.node("Add", self.node("Tanh", inner), self.number(1))
        return self.node("Mul", self.node("Mul", x, gate), self.number(0.5))

    def write(self, path, kind, shape, result, result_shape, version):
        graph = helper.make_graph(
            self.nodes, "by_hand", [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, result_shape)], self.tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
        onnx.checker.check_model(model)
        onnx.save(model, path)


def write_perceptron(model, shape, path):
    g = Graph()
    x = g.node("Flatten", "x", axis=1)
    x = g.gemm(x, model.fc_in, "first", shape[0])
    for i, layer in enumerate(model.layers):
        x = g.node("Add", x, g.node("Relu", g.gemm(x, layer, f"layer{i}", shape[0])))
    x = g.gemm(x, model.out, "last", shape[0])
    g.write(path, TensorProto.FLOAT, shape, x, [shape[0], model.out.out_features], 13)


def write_mixer(model, shape, path):
    g = Graph()

    def mix(x, parts, name):
        x = g.node("Gelu", g.linear(x, parts[0], name + "_in"), approximate="tanh")
        return g.linear(x, parts[2], name + "_out")

    x = g.linear("x", model.embed, "patches")
    for i, (places, channels) in enumerate(zip(model.places, model.channels)):
        y = g.node("Transpose", g.norm(x, model.norms[2 * i], f"norm{2 * i}"), perm=[0, 2, 1])
        x = g.node("Add", x, g.node("Transpose", mix(y, places, f"places{i}"), perm=[0, 2, 1]))
        y = g.norm(x, model.norms[2 * i + 1], f"norm{2 * i + 1}")
        x = g.node("Add", x, mix(y, channels, f"channels{i}"))
    x = g.linear(g.node("ReduceMean", x, g.ints(1), keepdims=0), model.head, "head")
    g.write(path, TensorProto.FLOAT, shape, x, [shape[0], model.head.out_features], 20)


def spelled_attention(g, q, k, v, heads, width, seq):
    """Scores, a mask that is added, their softmax."""
    def turn(x, perm):
        return g.node("Transpose", g.node("Reshape", x, g.ints(0, 0, heads, -1)), perm=perm)

    mask = g.tensor(np.triu(np.full((1, 1, seq, seq), -1e9, np.float32), 1), "mask")
    s = g.node("MatMul", turn(q, [0, 2, 1, 3]), turn(k, [0, 2, 3, 1]))
    s = g.node("Div", s, g.tensor(np.array(math.sqrt(width // heads), np.float32), "root"))
    s = g.node("Softmax", g.node("Add", s, mask), axis=-1)
    y = g.node("Transpose", g.node("MatMul", s, turn(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
    return g.node("Reshape", y, g.ints(0, 0, -1))


def write_gpt(model, shape, path, attention):
    """With the op Attention of version 23, or with all that it does, in words of version 17."""
    g, seq = Graph(), shape[1]
    x = g.node("Gather", g.tensor(model.wte.weight, "tokens"), "x")
    x = g.node("Add", x, g.tensor(model.wpe.weight, "positions"))
    for i, block in enumerate(model.blocks):
        heads, width = block.attn.heads, model.wte.embedding_dim
        qkv = g.linear(g.norm(x, block.ln_1, f"b{i}_norm1"), block.attn.c_attn, f"b{i}_qkv")
        q, k, v = g.node("Split", qkv, g.ints(width, width, width), outputs=3, axis=2)
        if attention:
            y = g.node("Attention", q, k, v, is_causal=1, q_num_heads=heads, kv_num_heads=heads)
        else:
            y = spelled_attention(g, q, k, v, heads, width, seq)
        x = g.node("Add", x, g.linear(y, block.attn.c_proj, f"b{i}_out"))
        y = g.linear(g.norm(x, block.ln_2, f"b{i}_norm2"), block.mlp[0], f"b{i}_up")
        y = g.node("Gelu", y, approximate="tanh") if attention else g.gelu(y)
        x = g.node("Add", x, g.linear(y, block.mlp[2], f"b{i}_down"))
    x = g.linear(g.norm(x, model.ln_f, "norm"), model.head, "logits")
    g.write(path, TensorProto.INT64, shape, x, [*shape, model.head.out_features], 23 if attention else 17)


def write_folded(path, samples=2, seq=4, width=8, vocab=12):
    """What an exporter that folds leaves of embeddings: a product has a turned copy of the table that it was tied to,
    and rows of positions, and the one of a kind of tokens, are there for each sample."""
    g, rng = Graph(), np.random.default_rng(1)
    table, rows, kind = (rng.normal(size=s).astype(np.float32) for s in ((vocab, width), (seq, width), (width,)))
    x = g.node("Gather", g.tensor(table, "table"), "x")
    x = g.node("Add", x, g.tensor(np.broadcast_to(kind, (samples, seq, width)), "kind"))
    x = g.node("Add", x, g.tensor(np.broadcast_to(rows, (samples, seq, width)), "rows"))
    one = g.tensor(np.ones(width, np.float32), "one")
    zero = g.tensor(np.zeros(width, np.float32), "zero")
    for _ in range(2):
        x = g.node("LayerNormalization", x, one, zero, axis=-1)
    x = g.node("MatMul", x, g.tensor(table.T, "turned"))
    g.write(path, TensorProto.INT64, (samples, seq), x, [samples, seq, vocab], 17)
