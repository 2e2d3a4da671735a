"""Lines that leave some of four heads: held against Python's filter and against the page's."""

from attnviz.metrics.head_filter import DescribedHead

METRICS = ("entropy", "relative-entropy", "sink", "self", "previous")
HEADS = (
    DescribedHead(0, 0, "self", "previous token 0.98", {"previous": 0.98, "sink": 0.1, "self": 0.01, "entropy": 0.2}),
    DescribedHead(3, 1, "self", "sink: [CLS] 0.83", {"previous": 0.02, "sink": 0.83, "self": 0.1, "entropy": 1.5}),
    DescribedHead(4, 11, "self", "uniform", {"previous": 0.5, "sink": 0.2, "self": 0.2, "entropy": 5.0}),
    DescribedHead(5, 1, "cross", "mixed", {"sink": 0.3, "entropy": 3.0}),
)
FILTERS = {
    "": ["0.0", "3.1", "4.11", "5.1"],
    "previous>0.5": ["0.0"],
    "previous >= .5": ["0.0", "4.11"],
    "prev>0.4 layer:3-5": ["4.11"],
    "previous<0.6": ["3.1", "4.11"],
    "-previous<0.6": ["0.0", "5.1"],
    "sink=0.83": ["3.1"],
    "sink=.3": ["5.1"],
    "layer:0,4-5": ["0.0", "4.11", "5.1"],
    "layers:3 head:1": ["3.1"],
    "head:1": ["3.1", "5.1"],
    "head:4.11,0.0": ["0.0", "4.11"],
    "kind:cross": ["5.1"],
    "-kind:cross": ["0.0", "3.1", "4.11"],
    "SINK": ["3.1"],
    "previous": ["0.0"],
    "-uniform -mixed": ["0.0", "3.1"],
    "4.11": ["4.11"],
    "entropy>1 sink<0.5": ["4.11", "5.1"],
    "nothing": [],
}
