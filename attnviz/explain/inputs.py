"""Explains the steps before and after the weights: tokens, features, queries, keys and values; sum, join, output.

After Vaswani et al. 2017, "Attention Is All You Need", sections 3.2.1 (the sum) and 3.2.2 (heads).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.effects.routes import ScoreParts
from attnviz.explain.tables import (
    Matrix,
    Step,
    Table,
    cut_table,
    join_heads,
    raw_scores,
    shape,
    sum_of_products,
    with_decimals,
)
from attnviz.models.reading.computation import Computation
from attnviz.report.picture.colors import ColorScale


@dataclass(frozen=True, eq=False)
class HeadView:
    """One head of a computation, and the width of its tables."""

    computation: Computation  # the numbers of the head's layer
    number: int  # the head's number in its layer, from 0
    line_width: int  # the most characters on a line of a table

    @property
    def width(self) -> int:
        """The number of features of a query and of a key in each head."""
        return int(self.computation.queries.shape[2])

    @cached_property
    def score_parts(self) -> ScoreParts:
        """What the scores of the last query are sums of; the computation must be able to run its model."""
        assert self.computation.score_parts is not None
        return self.computation.score_parts(self.number)

    @property
    def visible(self) -> BoolArray:
        """The cells that the mask leaves visible to the head, ``(queries, keys)``."""
        return self.computation.visible_to(self.number)

    @cached_property
    def row(self) -> int:
        """The query whose numbers the steps work out: the last one that sees a key, or else the first."""
        return int(np.flatnonzero(self.visible.any(axis=1)).max(initial=0))

    @cached_property
    def column(self) -> int:
        """The key whose numbers the steps work out: the one with the largest weight in the row."""
        return int(self.computation.weights[self.number, self.row].argmax())

    @property
    def query(self) -> str:
        """The label of the query whose numbers the steps work out."""
        return self.computation.tokens.labels[self.row]

    @property
    def key(self) -> str:
        """The label of the key whose numbers the steps work out."""
        return self.computation.key_tokens.labels[self.column]

    @property
    def raw_scores(self) -> FloatArray:
        """The dot products before they are scaled, ``(queries, keys)``."""
        return raw_scores(self.computation, self.number)

    def features(self, title: str, values: FloatArray, rows: tuple[str, ...], first: int = 0) -> Table:
        """Returns a table of feature vectors, one per token.

        Args:
            values: the vectors, ``(tokens, features)``.
        """
        columns = tuple(str(first + column) for column in range(values.shape[1]))
        return cut_table(Matrix(title, values, rows, columns), self.line_width)

    def projection(self, letter: str) -> Table:
        """Returns a table of a known projection's matrix, which starts a line: a row per input, and any bias last."""
        projection = self.computation.projections[letter]
        rows, values = [str(row) for row in range(len(projection.weight))], projection.weight
        if projection.bias is not None:
            rows, values = [*rows, f"b_{letter}"], np.vstack([values, projection.bias])
        return replace(self.features(f"W_{letter}", values, tuple(rows)), starts_line=True)

    def worked_product(self, letter: str, inputs: FloatArray) -> str:
        """Returns output 0 of a known projection as a sum of products and any bias."""
        projection = self.computation.projections[letter]
        bias = None if projection.bias is None else float(projection.bias[0])
        return sum_of_products(inputs, projection.weight[:, 0], bias)

    def cells(self, title: str, values: FloatArray, *, masked: bool = False, low: float | None = None) -> Table:
        """Returns a coloured table of queries by keys.

        Args:
            values: the numbers, ``(queries, keys)``.
        """
        visible = self.visible if masked else np.ones_like(self.visible)
        shown_values = values[visible] if visible.any() else np.zeros(1)
        low, high = float(shown_values.min()) if low is None else low, float(shown_values.max())
        scale = ColorScale(low, high if high > low else low + 1)
        rows, columns = self.computation.tokens.labels, self.computation.key_tokens.labels
        return cut_table(Matrix(title, values, rows, columns, visible, scale), self.line_width)


def explain_tokens(head: HeadView) -> Step:
    """Explains how the text, with its context or its image, becomes tokens."""
    computation = head.computation
    texts = [("Tokens and ids", computation.tokens)]
    if computation.cross:
        texts.append(("Tokens and ids of the context", computation.key_tokens))
    is_patch = computation.tokens.in_image
    if is_patch.any():
        return _explain_patches(head, is_patch)
    matrices = [Matrix(title, tokens.ids[None], ("id",), tokens.labels, spec=".0f") for title, tokens in texts]
    token_id = int(computation.tokens.ids[head.row])
    splitting_sentence = (
        "The text is split into tokens. The id of a token is its number in the vocabulary"
        + (f", which has {computation.vocabulary} tokens." if computation.vocabulary else ".")
        if computation.seed is not None or computation.model_name
        else "The text is split into tokens, and one that marks its start comes first. Each different token gets one "
        f"of {computation.vocabulary} numbers as its id."
    )
    context_sentence = " The context, to which the text attends, is split in the same way." if computation.cross else ""
    return Step(
        title="Text, tokens and ids",
        sentence=splitting_sentence + context_sentence,
        formula="text → tokens → ids",
        latex=r"\text{text} \to \text{tokens} \to \text{ids}",
        before=f"{len(computation.tokens.text)} characters",
        after=shape(queries=len(computation.tokens)),
        tables=tuple(cut_table(matrix, head.line_width) for matrix in matrices),
        examples=(f"The id of “{head.query}” is {token_id}: it stands for row {token_id} of the embedding matrix.",)
        if 0 <= token_id < computation.vocabulary
        else (),
    )


def _explain_patches(head: HeadView, is_patch: BoolArray) -> Step:
    """Explains how images become tokens, and the text beside them if the size of the vocabulary is known."""
    computation = head.computation
    tokens = computation.tokens
    word_indices = np.flatnonzero(~is_patch)
    labels = tuple(tokens.labels[index] for index in word_indices)
    image_count = len(np.unique(tokens.medium[is_patch]))
    images = "The image is" if image_count == 1 else f"The {image_count} images are"
    sizes = tokens.places[is_patch, 2:] - tokens.places[is_patch, :2]
    width, height = sizes[0].tolist()
    pixels = f"{width} x {height} pixels"
    size = f"of {pixels} each" if (sizes == sizes[0]).all() else f"the first of {pixels}"
    cutting_sentence = (
        f"{images} cut into {is_patch.sum()} patches, {size}, and each is a token: r0c0 is at the upper left."
    )
    step = Step(
        title="Image and tokens",
        sentence=cutting_sentence,
        formula="image → patches → tokens",
        latex=r"\text{image} \to \text{patches} \to \text{tokens}",
        before=f"{is_patch.sum()} patches" + (f" and {len(labels)} other" if labels else ""),
        after=shape(queries=len(tokens)),
    )
    if not computation.vocabulary or not labels:
        return step
    matrix = Matrix("Words and ids", tokens.ids[word_indices][None], ("id",), labels, spec=".0f")
    id_sentence = f" The id of a word is its number in the vocabulary, which has {computation.vocabulary} tokens."
    return replace(
        step,
        title="Image, text and tokens",
        sentence=cutting_sentence + id_sentence,
        formula="image, text → patches, words → tokens",
        latex=r"\text{image, text} \to \text{patches, words} \to \text{tokens}",
        before=f"{is_patch.sum()} patches and {len(labels)} of the text",
        tables=(cut_table(matrix, head.line_width),),
    )


def explain_embedding(head: HeadView) -> Step:
    """Explains how ids become feature vectors, with positions and the outputs of earlier layers if these are added."""
    computation = head.computation
    queries, features = computation.features.shape
    is_first_layer = computation.layer == 0
    tables = [head.features("X", computation.features, computation.tokens.labels)]
    if computation.cross:
        tables.append(head.features("X of the context", computation.context_features, computation.key_tokens.labels))
    positions = " + positions" if computation.positions else ""
    position_sentence = " Sines and cosines that encode its position are added." if positions else ""
    layer_sentence = f" The layers before layer {computation.layer} have added their outputs to it."
    position_latex = r" + \text{positions}" if positions else ""
    layer_latex = "" if is_first_layer else r" + \text{outputs of the layers before}"
    examples: list[str] = []
    if computation.embedded is not None:
        embedded, feature = (float(vectors[head.row, 0]) for vectors in (computation.embedded, computation.features))
        parts = f"E[{computation.tokens.ids[head.row]}, 0]{positions}{'' if is_first_layer else ' + layers before'}"
        if positions or not is_first_layer:
            parts += f" = {with_decimals(embedded)} + {with_decimals(feature - embedded)}"
        examples.append(f"X of “{head.query}”, feature 0 = {parts} = {with_decimals(feature)}")
    return Step(
        title="Embeddings",
        sentence=f"Each id selects a row of the embedding matrix E: the {features} features that represent the "
        f"token.{position_sentence}{'' if is_first_layer else layer_sentence}",
        formula=f"X = E[ids]{positions}" + ("" if is_first_layer else " + outputs of the layers before"),
        latex=r"X = E[\text{ids}]" + position_latex + layer_latex,
        before=f"{shape(queries=queries)} into E {shape(vocabulary=computation.vocabulary, features=features)}",
        after=shape(queries=queries, features=features),
        tables=tuple(tables),
        examples=tuple(examples),
    )


def explain_projections(head: HeadView) -> Step:
    """Explains how features become queries, keys and values; in cross-attention, keys and values of the context."""
    computation = head.computation
    queries, keys = computation.tokens.labels, computation.key_tokens.labels
    joined_heads = {
        "Q": ("queries", queries, join_heads(computation.queries)),
        "K": ("keys", keys, join_heads(computation.keys)),
        "V": ("keys", keys, join_heads(computation.values)),
    }
    tables = [head.features("X", computation.features, queries)]
    if computation.cross:
        tables.append(head.features("X of the context", computation.context_features, keys))
    formulas, shapes = [], []
    for letter, (axis, labels, values) in joined_heads.items():
        has_bias = computation.projections[letter].bias is not None
        formulas.append(f"{letter} = X W_{letter}" + (f" + b_{letter}" if has_bias else ""))
        shapes.append(f"{letter} {shape(**{axis: values.shape[0], 'features': values.shape[1]})}")
        tables += [head.projection(letter), head.features(letter, values, labels)]
    products = head.worked_product("Q", computation.features[head.row])
    result = with_decimals(float(joined_heads["Q"][2][head.row, 0]))
    return Step(
        title="Queries, keys and values",
        sentence="Three weight matrices turn the features of each token into three vectors: a query, what the token "
        "looks for; a key, what it offers; and a value, what it passes on to tokens that attend to it."
        + (" Queries come from the text, keys and values from the context." if computation.cross else ""),
        formula="    ".join(formulas),
        latex=r", \quad ".join(formulas),
        before=f"X {shape(queries=len(computation.features), features=computation.features.shape[1])}",
        after=", ".join(shapes),
        tables=tuple(tables),
        examples=(
            f"Q of “{head.query}”, feature 0 = {products} = {result}",
            *(("K and V are computed from X of the context.",) if computation.cross else ()),
        ),
    )


def explain_heads(head: HeadView) -> Step:
    """Explains how the features are split between the heads, or that there is one head.

    For a captured model, explains the queries, keys and values that were captured.
    """
    computation = head.computation
    head_count, query_count, width = computation.queries.shape
    value_width = computation.values.shape[2]
    head_name = f"{computation.layer}.{head.number}"
    tables = [
        head.features(f"{letter} of head {head_name}", values[head.number], labels, head.number * values.shape[2])
        for letter, values, labels in (
            ("Q", computation.queries, computation.tokens.labels),
            ("K", computation.keys, computation.key_tokens.labels),
            ("V", computation.values, computation.key_tokens.labels),
        )
    ]
    if computation.model_name:
        return _captured_heads_step(head, tables)
    value_note = "" if value_width == width else f" ({value_width} of a value)"
    return Step(
        title="Split into heads",
        sentence=f"The features are split between {head_count} heads, {width} for each{value_note}. Every head attends "
        "in its own way, with its own part of each query, key and value. From here on, all numbers are those of head "
        f"{head_name}."
        if head_count > 1
        else "There is one head, so there is nothing to split: it uses all features.",
        formula=f"Q_h = columns {width}·h to {width}·h + {width - 1} of Q; K_h and V_h in the same way",
        latex=rf"Q_h = Q_{{:,\; {width}h \dots {width}h + {width - 1}}}",
        before=shape(queries=query_count, features=head_count * width),
        after=shape(heads=head_count, queries=query_count, features=width),
        tables=tuple(tables) if head_count > 1 else (),
        examples=(
            f"Head {head_name} begins at column {width}·{head.number} = {width * head.number} of Q: "
            f"for “{head.query}”, {with_decimals(float(computation.queries[head.number, head.row, 0]))}",
        ),
    )


def _captured_heads_step(head: HeadView, tables: list[Table]) -> Step:
    """Returns the step that explains queries, keys and values captured while a model ran."""
    computation, number = head.computation, head.number
    head_count, query_count, width = computation.queries.shape
    plural = "s" if computation.key_heads > 1 else ""
    sharing = (
        f" The {head_count} query heads share {computation.key_heads} key/value head{plural}."
        if computation.key_heads != head_count
        else ""
    )
    return Step(
        title="Queries, keys and values",
        sentence=f"The queries, keys and values of head {computation.layer}.{number} as {computation.model_name} "
        "multiplies them: after its projections and any further change, such as a norm or rotation by position (RoPE). "
        "X, W_Q, W_K and W_V are not shown: a model may join these matrices in one, and their products need not be Q, "
        "K and V yet." + sharing,
        formula=f"X → Q_{number}, K_{number}, V_{number}",
        latex=rf"X \to Q_{{{number}}}, K_{{{number}}}, V_{{{number}}}",
        before=f"{head_count} heads",
        after=f"Q {shape(queries=query_count, features=width)}, "
        f"K {shape(keys=len(computation.key_tokens), features=width)}",
        tables=tuple(tables),
    )


def explain_sum(head: HeadView) -> Step:
    """Explains how the weights, after dropout if there is any, mix the values."""
    computation = head.computation
    weights, values = computation.dropped_weights[head.number], computation.values[head.number]
    mixed_values = computation.mixed_values[head.number]
    first_feature = head.number * mixed_values.shape[1]
    products = sum_of_products(weights[head.row], values[:, 0])
    result = with_decimals(float(mixed_values[head.row, 0]))
    return Step(
        title="Weighted sum of values",
        sentence="Each query receives the average of the values, weighted by its attention weights: this is where "
        "information moves from one token to another.",
        formula="C = D V" if computation.dropout else "C = P V",
        latex="C = D V" if computation.dropout else "C = P V",
        before=f"weights {shape(queries=weights.shape[0], keys=weights.shape[1])}, "
        f"V {shape(keys=values.shape[0], features=values.shape[1])}",
        after=shape(queries=mixed_values.shape[0], features=mixed_values.shape[1]),
        tables=(head.features("C", mixed_values, computation.tokens.labels, first_feature),),
        examples=(f"C of “{head.query}”, feature {first_feature} = {products} = {result}",),
    )


def explain_join(head: HeadView) -> Step:
    """Explains how the outputs of the heads are joined, or that there is one head."""
    computation = head.computation
    head_count, query_count, width = computation.mixed_values.shape
    joined_heads = head.features("C", join_heads(computation.mixed_values), computation.tokens.labels)
    last = head_count - 1
    between = ", …, " if last > 1 else ", "
    return Step(
        title="Join the heads",
        sentence=f"The outputs of the {head_count} heads are concatenated, head 0 first."
        if head_count > 1
        else "There is one head, so there is nothing to join.",
        formula=f"C = [C_0{between}C_{last}]" if last else "C = C_0",
        latex=rf"C = [C_0{between}C_{{{last}}}]".replace("…", r"\dots") if last else "C = C_0",
        before=shape(heads=head_count, queries=query_count, features=width),
        after=shape(queries=query_count, features=head_count * width),
        tables=(joined_heads,) if head_count > 1 else (),
        examples=(
            f"Head {computation.layer}.{last} begins at column {width}·{last} = {width * last} of C: "
            f"for “{head.query}”, {with_decimals(float(computation.mixed_values[last, head.row, 0]))}",
        ),
    )


def explain_output(head: HeadView) -> Step:
    """Explains how the output projection turns the joined outputs of the heads into features of the model."""
    computation = head.computation
    head_count, query_count, width = computation.mixed_values.shape
    labels, mixed_values = computation.tokens.labels, join_heads(computation.mixed_values)
    tables, formula = [head.features("Y", computation.output, labels)], "Y = f(C) W_O"
    examples = ["W_O is not shown: the model changes C before it, for example by a gate or a norm."]
    if projection := computation.projections.get("O"):
        tables = [head.features("C", mixed_values, labels), head.projection("O"), *tables]
        formula = "Y = C W_O" + ("" if projection.bias is None else " + b_O")
        products = head.worked_product("O", mixed_values[head.row])
        output = float(computation.output[head.row, 0])
        examples = [f"Y of “{head.query}”, feature 0 = {products} = {with_decimals(output)}"]
        if computation.features.size:
            feature = float(computation.features[head.row, 0])
            sum_words = f"{with_decimals(feature)} + {with_decimals(output)} = {with_decimals(feature + output)}"
            examples.append(f"The layer passes on X + Y, for “{head.query}”, feature 0: {sum_words}")
    return Step(
        title="Output projection",
        sentence="A last matrix turns the joined outputs of the heads into features of the model. The layer adds them "
        "to its input and passes the sum on.",
        formula=formula,
        latex=formula,
        before=shape(queries=query_count, features=head_count * width),
        after=shape(queries=query_count, features=computation.output.shape[1]),
        tables=tuple(tables),
        examples=tuple(examples),
    )
