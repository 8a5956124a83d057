"""Cuts a sample, spread evenly over a treebank; its sentences stay as they are. `relprop heads` comes with one.

python tools/treebank_sample.py en_ewt-ud-dev.conllu.gz src/relprop/heads/data/ewt-sample.conllu.gz
"""

import argparse
import gzip
from pathlib import Path

SENTENCES = 500


def sample(text: str, count: int) -> str:
    """`count` sentences of a CoNLL-U text, at even distances; all where there are fewer."""
    sentences = [block.strip("\n") for block in text.replace("\r\n", "\n").split("\n\n") if block.strip()]
    count = min(count, len(sentences))
    return "".join(f"{sentences[i * len(sentences) // count]}\n\n" for i in range(count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("treebank", type=Path, help="a gzipped CoNLL-U file")
    parser.add_argument("output", type=Path, help="the gzipped sample")
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    args = parser.parse_args()
    text = gzip.decompress(args.treebank.read_bytes()).decode("utf-8")
    content = sample(text, args.sentences).encode("utf-8")
    args.output.write_bytes(gzip.compress(content, mtime=0))  # no date: the same file whenever it is made
    print(f"{args.output}: {args.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
