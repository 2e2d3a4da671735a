/** @import { Child, Tree } from "./tree.js" */

/**
 * The shapes of the page's values, for the type checker alone: nothing of this file reaches the page.
 *
 * @typedef {"matrix" | "arcs" | "text" | "table"} ViewName
 * @typedef {"" | "A" | "B" | "change"} SideName which run of a comparison is shown; "" where there is one run
 * @typedef {"linear" | "sqrt" | "log" | "lift"} Steps of the colours
 * @typedef {"maps" | "numbers" | "lens" | "points" | "why"} ListName how all heads are shown: thumbnails, a table, one
 *   token's rows, points of two numbers, or why the model predicts a token
 * @typedef {"text" | "image" | "sound"} MediumName what tokens have their places in; "image" where some are in images
 * @typedef {"side" | "overlay" | "difference" | "mean" | "max" | "rollout"} Together how several heads are shown
 * @typedef {"mean" | "max"} Pool
 * @typedef {"shared" | "head"} Limits of the colours
 * @typedef {"" | "column" | "page" | "slide"} FigureSize of a saved figure: of a journal's column or page, or a slide
 * @typedef {"weight" | "contribution" | "implicit"} Quantity
 * @typedef {"query" | "key"} Axis
 * @typedef {{ query: number | null, key: number | null, head?: number }} Mark a cell, or a token where one of both is
 *   null; of one head where several are shown
 * @typedef {(row: number, column: number) => number} Seen how many keys a cell's query may see
 * @typedef {{ first: number, step: number } | { counts: number[] }} Counts of keys that each query may see
 */

/**
 * The data that Python wrote into the page.
 *
 * @typedef {object} Page
 * @property {string} title
 * @property {string} caption
 * @property {string | null} leftOut what overviews leave out, in a sentence
 * @property {string} [tower] the tower that has the heads, with a capital letter, if the model has two
 * @property {Precision} precision
 * @property {string} precisionSaid
 * @property {AboutScores[][] | null} scores by head, then by side: how queries and keys are read that stand beside weights
 * @property {Quantity} quantity what stands where weights do
 * @property {Moved | null} moved by what weights become contributions, where that is known
 * @property {number} block tokens that a cell stands for, each way
 * @property {boolean} absent whether a cell is masked
 * @property {boolean} nan whether a weight is NaN
 * @property {[number, number, number]} nanColor
 * @property {Record<string, string>} palettes 256 colours each, in base 85
 * @property {string} sequential
 * @property {string} diverging
 * @property {number} high the largest weight
 * @property {number} reach the largest change from A to B
 * @property {string[]} sides "A" and "B", or "" alone
 * @property {Text[]} texts
 * @property {Head[]} heads
 * @property {number} thumbnailLargest
 * @property {number} leastHigh where a scale of weights ends at the earliest
 * @property {number[]} liftHighs where the colours of lift end for all heads, of each side
 * @property {number} liftQuantile the part of the cells that the colours of lift of a head cover
 * @property {number} minLiftReach
 * @property {string} thumbnails codes of means and maxima, in base 85
 * @property {ViewName} view
 * @property {number | null} query
 * @property {string} sort the metric that heads are ordered by at first, with a minus for the smallest first
 * @property {Steps | null} steps
 * @property {Limits} limits
 * @property {[number, number] | null} fixed
 * @property {Metrics | null} metrics
 * @property {Counts[]} seen
 * @property {{ input: string, remark: string, compares: boolean }} command that shows the same recording
 * @property {Note[]} notes
 * @property {SurveyData} [survey] what the page of a survey has besides
 * @property {Table} table
 * @property {"maps" | "lens" | "why"} overview how all heads are shown at first
 * @property {WhyData | null} why what explains a prediction
 * @property {Partial<Page>} [turns] what is other than here where rows and columns are the turns of a chat
 */

/**
 * The table of what can be chosen and done, which `attnviz.report.words.choices` describes.
 *
 * @typedef {object} Table
 * @property {Record<string, string>} facts what a reader is told where one does not hold
 * @property {Choice[]} choices
 * @property {Action[]} actions
 * @property {Record<string, string>} keyNames
 *
 * @typedef {{ needs: string[] }} Row
 * @typedef {Row & { word: string, label: string, key: string, clears: [string, string][], written: string }} ChoiceValue
 * @typedef {Row & { name: ChoiceName, group: "place" | "shown" | "look" | "part" | "figure", title: string, values: ChoiceValue[],
 *   does: string, key: string, switch: string, address: string }} Choice
 * @typedef {"list" | "view" | "together" | "direction" | "by" | "special" | "scores" | "side" | "of" | "steps" | "limits" | "pool" | "share" | "size"} ChoiceName
 * @typedef {Row & { name: string, keys: string[], names: string[], does: string }} Action
 */

/**
 * @typedef {object} Moved by head, as those of weights are
 * @property {number} unit the norm that stands for 100 %
 * @property {number} high
 * @property {number[]} tops
 * @property {([number, number, number] | null)[]} peaks
 * @property {[number, number][]} thumbnailHighs
 */

/**
 * @typedef {object} Metrics
 * @property {string[]} names
 * @property {("share" | "bits" | "tokens" | "norm" | "change")[]} units
 * @property {string[]} meanings
 * @property {number[]} lows the least number of each, 0 at most
 * @property {number[]} highs the largest number of each
 * @property {string} codes in 16 bits from the least to the largest, heads by metrics, in base 85
 * @property {[string, string][]} patterns names and tokens
 * @property {number[][]} of places of each head's patterns
 * @property {(number | null)[][]} values their numbers; null for a pattern without one
 * @property {number} every
 */

/**
 * @typedef {object} DescribedHead
 * @property {string} name
 * @property {number} layer
 * @property {number} head
 * @property {string} kind
 * @property {string} pattern
 * @property {Record<string, number>} numbers
 * @property {number | null} text its number in a batch; null for means over texts
 */

/**
 * @typedef {{ query: Float32Array | null, key: Float32Array | null, said: string, colors?: string[], note?: Child[],
 *   heads?: (place: number) => { number: number, value: number }[], scale?: Scale }} Shades by the axis that is shaded; in
 *   colours of their own where several heads shade, with those of the heads that look most at a place, and a scale and
 *   words of their own where these are no weights
 */

/**
 * Why the model predicts a token: numbers in units of its logit. Heads are places in the list of all heads' names.
 *
 * @typedef {object} WhyData
 * @property {string} title
 * @property {number} position the token after which it predicts
 * @property {number} head the page's head whose texts are the sources
 * @property {[string, number][]} candidates labels and probabilities
 * @property {[string, number][]} heads names, and the page's numbers of them; -1 for a head that the page has not
 * @property {[string, number, number][]} bars labels, amounts, and heads, -1 for other parts; together they are the logit
 * @property {number} logit
 * @property {string} total what the bars sum to
 * @property {WhySources[]} axes of self-attention, and of cross-attention if there is any
 * @property {{ label: string, others: string, draws: string, lost: number, controls: number[] }[]} checks
 * @property {string} options of the command that explains this again
 * @property {string} measured what checks lose of
 * @property {RoutesData | null} routes
 * @property {UnitsData | null} units
 *
 * @typedef {object} WhySources
 * @property {number} text which of the page's texts
 * @property {number[]} adds what each token adds through all heads
 * @property {number[]} sinks
 * @property {[number, number][][]} heads those that bring most of each token, and what they bring
 *
 * @typedef {object} RoutesData
 * @property {number[]} layers
 * @property {[number, number, string][]} tokens that routes touch: the place of each in the text, its cell on the page, its label
 * @property {number} position the place among these tokens of the one that predicts, as those of edges are
 * @property {number} logit
 * @property {number} least the smallest share of the logit that an edge carries
 * @property {"1" | "2" | "5" | "10"} begun the choice of the least share with which the graph begins
 * @property {number} kept the share of what heads move that the edges hold
 * @property {RouteEdge[]} edges the largest first
 * @property {number[][]} stays by layer and token
 * @property {number[][]} sources what enters, by layer and token; the first row is the embedding's
 *
 * @typedef {{ name: string, number: number, layer: number, query: number, key: number, adds: number }} RouteEdge
 *
 * @typedef {object} UnitsData
 * @property {string[]} labels
 * @property {number[]} of the unit of each token; -1 for none
 * @property {{ name: string, title: string, values: (number | null)[][], isChange: boolean }[]} maps later units by earlier ones
 */

/** @typedef {{ place: string, text: string }} Note a place as the page's address writes it, and what is said there */

/**
 * @typedef {object} Precision
 * @property {"float32" | "uint16" | "uint8"} dtype
 * @property {number} largest the code of the largest weight; 0 where weights are kept as they are
 */

/**
 * @typedef {object} Text what stands along an axis
 * @property {string[]} labels
 * @property {number} [first] number of the first token
 * @property {boolean} [cut] whether the axis goes on before or after it
 * @property {number[]} [edges] of blocks: the first token of each, and the end
 * @property {string} spaces what stands before each label: a line end, a space, or "-" for nothing
 * @property {string[]} [written] what is written in each unit of several words; "" where its label says it
 * @property {ShownImage[]} [pictures] of a chat, each in a turn of its own
 * @property {[number[], number[]][]} [pieces] of each turn: its tokens, and where they begin in what is written there
 * @property {number} [asked] the query that all heads are seen from where none is chosen; -1 for the mean of all
 * @property {number[]} [special] places of special tokens
 * @property {number[]} [leftOut] places of those that overviews leave out as keys, since most of the weight is on them
 * @property {{ starts: number[], labels: string[] }} [words] the first token of each word; labels "" for single tokens
 * @property {MediumName} [medium] a text where nothing is said
 * @property {ShownImage[]} [images] those that tokens are patches of
 * @property {string} [others] what the tokens outside of images are called
 * @property {{ envelope: string, length: number }} [sound] whose frames the tokens are: amplitudes in base 85, and seconds
 * @property {[number, number]} [seconds] of frames of a sound: at the middle of frame 0, and from one to the next
 * @property {[number, number, number, number][]} [spoken] of queries over a sound: each word's first token and its end,
 *   and the seconds at which it begins and ends
 */

/**
 * @typedef {object} ShownImage
 * @property {string} src its pixels in grey, as a data address
 * @property {number} width that boxes count
 * @property {number} height
 * @property {number} grey its median brightness, 0 to 255
 * @property {string} title
 * @property {number[]} tokens that are patches of it; where a cell is a block, that of each patch
 * @property {number[][]} boxes left, top, right and bottom of each of them
 * @property {number} [seconds] of the sound, if it is a spectrogram
 */

/**
 * @typedef {object} Head
 * @property {number} layer
 * @property {number} head
 * @property {string} name
 * @property {string} [given] the name that a person gave it
 * @property {"self" | "cross"} kind
 * @property {number | null} item number of its text in a batch
 * @property {boolean} same whether queries and keys are the same tokens
 * @property {number[]} queries numbers of the texts, by side
 * @property {number[]} keys
 * @property {[number, number]} thumbnail rows and columns
 * @property {AboutFactors[]} factors by side; none where weights are kept
 * @property {([number, number, number] | null)[]} peaks row, column and value of the largest weight, by side
 * @property {number[]} highs what the largest code stands for, by side
 * @property {[number, number][]} thumbnailHighs
 * @property {number[]} tops the largest weight of queries that see several keys, by side
 * @property {number[]} seen which of the page's counts, by side
 * @property {number} reach
 */

/**
 * @typedef {object} AboutFactors how the factors of a head are read
 * @property {number} features
 * @property {number} unit
 * @property {number} rounding
 * @property {number | null} softcap
 * @property {Record<string, number>} parts names and lengths of the arrays after the queries
 * @property {MaskRule} mask
 * @property {number} keys which of the page's keys
 */

/**
 * @typedef {object} AboutScores how queries and keys are read that stand beside weights
 * @property {number} features
 * @property {number} unit that products of queries and keys are multiplied by
 * @property {number} rounding how far a product may be from its own, of its size
 *
 * @typedef {AboutScores & { queries: Float32Array, keys: Float32Array }} ScoreFactors rows of features
 */

/**
 * @typedef {object} MaskRule
 * @property {boolean} causal
 * @property {number | null} window
 * @property {number | null} chunk
 * @property {number} prefix
 * @property {number | null} tail
 * @property {number} firstQuery
 * @property {number} firstKey
 */

/**
 * @typedef {object} FactorParts arrays of a head besides its queries and keys
 * @property {Float32Array} sums log-sum-exp of each row
 * @property {Float32Array} [relative] bias by key - query
 * @property {Float32Array} [byKey] bias by key
 * @property {Float32Array} [real] whether a key is no padding, by key
 *
 * @typedef {FactorParts & FactorRows} GivenFactors
 * @typedef {object} FactorRows
 * @property {Float32Array} queries rows of features
 * @property {Float32Array} keys rows of features
 * @property {number} features
 * @property {number} unit that products of queries and keys are multiplied by
 * @property {number} rounding how far a product may be from its own, of its size
 * @property {number | null} softcap
 * @property {MaskRule} mask
 * @property {Float32Array | null} [moved] what weights are multiplied by, by key, where contributions are shown
 */

/**
 * @typedef {{ value: number, error: number } | { below: number }} Score a score with its error, or a bound above it
 */

/**
 * @typedef {object} Scale
 * @property {number} low
 * @property {number} high
 * @property {string} palette
 * @property {Steps} steps
 * @property {boolean} change whether values are changes, around zero
 * @property {boolean} [scores] whether values are scores, which may be negative
 */

/**
 * @typedef {object} GridAbout what a grid is of
 * @property {number} number of the first of its heads
 * @property {string} title
 * @property {Text} queries what stands along its rows
 * @property {Text} keys and along its columns
 * @property {boolean} same whether these are the same tokens
 * @property {Scale} scale
 * @property {Seen} seen
 *
 * @typedef {object} GridCells
 * @property {number} rows
 * @property {number} columns
 * @property {Float32Array | null} values of all cells; null where they are computed when they are looked at
 * @property {(row: number, column: number) => number} at
 * @property {(axis: Axis, place: number) => Float32Array} line a query's row, or a key's column
 * @property {(axis: Axis, place: number) => boolean} isKnown whether a line need not be computed
 * @property {(row: number, column: number) => Score | null} score null where none is known
 * @property {(row: number, column: number) => number | null} errorAt a bound; null where none is known, or there is none
 * @property {(mark: Mark) => Mark} cellOf the row and the column of tokens
 * @property {(cell: Mark) => Mark} markOf the tokens of a row and a column
 * @property {Grid[]} sides the weights of each recording, where cells are of one head
 * @property {Grid} [source] of tokens, where this is of units
 * @property {Float32Array} [maxima] of blocks
 * @property {ScoreFactors} [factors]
 * @property {PartOf} [partOf] what its parts are computed of, where not of one head
 * @property {Grid[]} [all] heads over each other
 * @property {(mark: Mark | null) => Shades} [shades] what shades the text, where not a line of the head
 * @property {(mark: Mark, down: number, right: number) => Mark} [moved] where an arrow moves a mark
 * @property {Text} [tokens] those of a lens, where its columns are words
 * @property {(mark: Mark) => string[]} [said] what is said of a cell, where not by its head's numbers
 *
 * @typedef {GridAbout & GridCells} Grid numbers over two axes: of a head, of several, or of one token in all of them
 * @typedef {Grid} Shown what is open
 */

/**
 * @typedef {object} Part of a head that the worker computes: tokens, and the pixels to which they are pooled
 * @property {number} top
 * @property {number} bottom
 * @property {number} left
 * @property {number} right
 * @property {number} height
 * @property {number} width
 */

/**
 * @typedef {object} DrawnThumbnail rows and columns of which those between are shown, and the keys that each row sees
 * @property {number} rows
 * @property {number} columns
 * @property {number} top
 * @property {number} bottom
 * @property {number} left
 * @property {number} right
 * @property {Float32Array} seen
 * @property {Float32Array} values
 */

/**
 * @typedef {object} Rows cells that are computed, or held: four rows at once
 * @property {(row: number, start: number, stop: number, out: Float32Array) => Float32Array} fillRows
 * @property {Float32Array} [values] of all cells, where they are held
 */

/**
 * @typedef {{ numbers: number[], how: "mean" | "max" | "difference" | "rollout" | null, side: number, moved: boolean }} OfHeads
 *   a head with all its sides where there is no how, else several heads as one; weights, or contributions
 * @typedef {Omit<OfHeads, "moved">} PartOf
 * @typedef {{ mean: Float32Array, max: Float32Array }} Pooled
 * @typedef {{ first: number, last: number, pooled: Pooled[] }} WindowBand lines of pixels from first to last, by side
 * @typedef {Part & { values: Float32Array, span?: [number, number], canvas?: HTMLCanvasElement, painted?: string }} PaintedPart
 */

/**
 * What the worker knows of a page, and what it is asked: each question has a number, which its answers have, too.
 *
 * @typedef {object} StoredPage
 * @property {Precision} precision
 * @property {number} block
 * @property {{ layer: number, highs: number[], factors: AboutFactors[], shapes: [number, number][] }[]} heads
 *
 * @typedef {{ id: number, number: number, side: number, moved: boolean }} AskedSide
 * @typedef {({ ask: "side" | "keys" } & AskedSide) | ({ ask: "map", id: number } & OfHeads) | { ask: "scores" | "moved", id: number }} AskedOnce
 * @typedef {{ ask: "lines", id: number, number: number, axis: Axis, place: number, moved: boolean }} AskedLine
 * @typedef {{ ask: "window", id: number, part: Part } & OfHeads} AskedWindow
 */

/**
 * @typedef {{ x: number, y: number, width: number, height: number }} Area the part of a picture that is seen
 * @typedef {{ tree: Tree[], width: number, height: number, scale?: Scale }} Figure elements, their size, and the scale of the cells in it
 * @typedef {Area & { canvas: HTMLCanvasElement }} CellImage cells under the elements of a picture, in their place
 */

/**
 * @typedef {object} Picture what a stage shows
 * @property {Shown} shown
 * @property {number} factor of the zoom
 * @property {boolean} [dimmed] whether the lines of what is marked stand out
 * @property {{ left: number, top: number }} fixed what stays in place while the rest scrolls
 * @property {string} [note]
 * @property {Scale} [scale] where it is not the head's
 * @property {boolean} [pooled] whether a pixel is more than a cell
 * @property {Picture[]} [peers] pictures side by side, which share a scale
 * @property {number} [cell] pixels of a cell's smaller side
 * @property {(width: number, height: number) => { width: number, height: number }} measure
 * @property {(area: Area, density: number) => CellImage[]} images of the cells, for so many pixels in one of the layout
 * @property {(area: Area) => Tree[]} base what lies over the cells, and around them
 * @property {(area: Area) => Tree[]} marks what is marked
 * @property {() => Picture} inFile a copy that is laid out for a file
 * @property {(area: Area, width: number, most: number) => Area} partFor lays it out so that the same is seen in other pixels
 * @property {(x: number, y: number, area: Area) => Mark | null} pointAt
 * @property {(mark: Mark) => Area} placeOf
 * @property {(row: number) => Area} [rowPlace] where a row of a lens is
 * @property {(factor: number) => number} zoomBy how far the content grew
 * @property {(mark: Mark | null) => void} [click]
 * @property {(x: number, y: number) => boolean} [isSound] whether a drag keeps an interval there
 * @property {[number, number] | null} [dragged] the interval that is dragged over
 * @property {(x: number, area: Area) => number} [secondAt]
 * @property {(mark: Mark | null) => void} [open] what a double click does, where it does not zoom
 */

/**
 * @typedef {object} Stage
 * @property {Picture} picture
 * @property {HTMLElement} element
 * @property {number} width
 * @property {number} height
 * @property {Area} area
 * @property {Area} last
 * @property {() => void} draw
 * @property {() => void} request draws at the next frame
 * @property {() => void} fit
 * @property {(factor: number) => void} zoom
 * @property {() => void} moved
 * @property {{ width: number, height: number }} whole of the picture at its zoom
 * @property {(row: number) => void} revealRow
 * @property {(mark: Mark, factor: number, place: [number, number]) => void} showAt
 * @property {(mark: Mark) => boolean} fly
 * @property {DOMRect} cellsInWindow
 * @property {(shown: Shown) => boolean} keptFor
 * @property {(mark: Mark | null, content?: Child[] | null, x?: number, y?: number) => void} showTip
 */

/**
 * @typedef {object} View what draws the open head
 * @property {() => void} drawOver
 * @property {(mark: Mark) => void} reveal
 * @property {() => void} fit
 * @property {(width: number) => Figure} [figure] it in a file, where it is no stage
 * @property {Stage} [stage]
 * @property {Stage[]} [stages] where several stand side by side
 * @property {Shown | null} [all] the mean of these
 * @property {number} [across] how many stages stand side by side
 * @property {{ draw: () => void }} [images] of a lens: all heads over the images
 */

/**
 * @typedef {object} State
 * @property {number | null} head number of the open head; null for the overview
 * @property {ViewName} view
 * @property {SideName} side
 * @property {Quantity} of what the cells are
 * @property {Limits} limits
 * @property {Steps} steps
 * @property {FigureSize} size of a saved figure
 * @property {"1" | "2" | "5" | "10"} share of the logit that a route carries at least, in percent
 * @property {ListName} list how all heads are shown where none is open
 * @property {number[]} chosen heads that are shown together
 * @property {Together | null} together
 * @property {"tokens" | "words" | "turns"} by what a row and a column stand for
 * @property {"" | "shown" | "hidden"} special what becomes of special tokens, and of those that overviews leave out; "" leaves them out of overviews alone
 * @property {"hidden" | "shown"} scores whether cells are scores instead of weights
 * @property {[number, number] | null} interval seconds of the sound that maps and shares are restricted to
 * @property {string} filter
 * @property {string} sort
 * @property {string} across the number along which heads are points; "" where they are none
 * @property {string} up
 * @property {string} sized the number that points grow with; "" where all are of one size
 * @property {string} colour
 * @property {string} textsBy the metric that texts of a head's card are listed by; "" for that which tells most of it
 * @property {Set<number> | null} brushed heads that a rectangle was drawn around
 * @property {boolean} noting whether the notes are stepped through
 * @property {number} note which of them is shown
 * @property {Pool} pool of thumbnails and of computed parts
 * @property {"to" | "from"} direction of the text view
 * @property {Mark | null} mark what is pointed at
 * @property {Mark | null} pin what was clicked
 * @property {{ text: string, place: number, mark: Mark | null }} found the last search, and which of its matches was chosen
 * @property {boolean} pooled whether a pixel of what is drawn is more than a cell
 * @property {string} unknown what the address names that the page does not have; "" for nothing
 */

/**
 * @typedef {object} Scene what is drawn of the state
 * @property {Shown | null} shown the open head's numbers
 * @property {View | null} current what draws them
 * @property {View | null} strip the text on top
 * @property {Shown | null} asked the token that all heads are seen from where nothing is chosen, if there is one
 * @property {Shown | null} pointed the head whose thumbnail is pointed at
 * @property {((parent: HTMLElement) => View) | null} drawWhy what draws the answer to why, on a page that has one
 */

/** @typedef {Pick<Page, "heads" | "texts" | "sides" | "quantity" | "moved" | "metrics" | "survey" | "block" | "table" | "leftOut" | "turns" | "why">} Places what an address may name */

/**
 * The data of the page of a survey besides what every page says; heads and metrics are in the order of all arrays.
 *
 * @typedef {object} SurveyData
 * @property {"texts" | "pictures"} noun of the examples
 * @property {string[]} classes the metrics that are shares by class of token
 * @property {[number, number][]} offsets the first and last of each bin
 * @property {[number, number][]} positions
 * @property {string[]} shownBy the metric that each head's examples are chosen by
 * @property {string[]} axes
 * @property {[string, number, number, number, number, number][][]} examples of each head: why, its number, text, query,
 *   rows, place of the metric
 *
 * @typedef {object} SurveyNumbers
 * @property {Float32Array} margins heads x metrics, half of the 95 % interval of each mean
 * @property {Float32Array} spreads
 * @property {Float32Array} counts
 * @property {Float32Array} deciles heads x metrics x 11
 * @property {Float32Array} weights heads x offsets
 * @property {Float32Array} scores
 * @property {Float32Array} entropies heads x positions
 *
 * @typedef {object} SurveyText
 * @property {string[]} labels
 * @property {string} spaces what stands before each token
 * @property {MediumName} [medium]
 * @property {ShownImage[]} [images]
 * @property {string} [others]
 * @property {string} place in the corpus
 * @property {boolean} whole
 * @property {[string, string]} command before and after the head's name
 *
 * @typedef {object} SurveyExample
 * @property {string} said why it is one
 * @property {number} value
 * @property {number} text
 * @property {number} query -1 for none
 * @property {number} rows of weights: none, that of the query or the mean, or all
 * @property {number} metric the place of the metric that it is listed by
 * @property {Uint8Array} codes
 */

export {};
