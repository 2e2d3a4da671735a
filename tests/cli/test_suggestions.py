"""Wrong command lines: each is one line that says what was meant, and what it advises is accepted when it is typed."""

import base64
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer.main

from attnviz.base.options import declared_options
from attnviz.cli.commands import app, main
from attnviz.render.formats import FORMATS, KINDS
from attnviz.report.picture.look import Look

Run = Callable[[str], tuple[int, str]]

# What is typed, and the part of the line that says what was wrong and what works.
WRONG = {
    "show Life is short": 'quote the text: attnviz show "Life is short"',
    "compare Life is short --causal": 'quote the text: attnviz compare "Life is short"',
    "heads Life is short": 'quote the text: attnviz heads "Life is short"',
    "show table.csv": "'table.csv' is a file here; --file table.csv reads it",
    "explain table.csv": "--file table.csv reads it",
    "heads table.csv": "--file table.csv reads it",
    "show table.csv -o run2.safetensors": "--file table.csv reads it",
    "compare Life --with notes.txt": "attnviz show --file notes.txt -o other.safetensors makes a recording",
    "heads Life --types": "TEXT does not apply to --types, which tests a whole model on texts of its own",
    "heads --types --sort sink": "--sort does not apply to --types",
    "heads --types --names names.txt": "--names does not apply to --types",
    "show ./model": "is the folder of a model; give a text and --model ./model to run it",
    "show folder": "'folder' is a folder here",
    "show x.npz": "'x.npz' holds no attention under a known name",
    "show weights.npy": "there is no file 'weights.npy'; give ",
    "show gone.safetensors": "gone.safetensors",
    "show run.safetensors -o words.vtt": "words get their seconds from heads that attend to a sound",
    "show run.safetensors --causal": "--causal does not apply to a saved file",
    "show run.safetensors --model trained": "--model does not apply to a saved file",
    "show run.safetensors --model seeded": "--model does not apply to a saved file",
    "show run.safetensors --set seed=0": "seed does not apply to a saved file",
    "heads run.safetensors --set num-heads=3": "num-heads does not apply to a saved file",
    "compare run.safetensors table.csv": "-o other.safetensors makes a recording to compare with",
    "compare run.safetensors run.safetensors --with Life": "SECOND and --with both give what to compare with",
    "show 'a cat' --words": "no option --words; write --by words instead",
    "show Life --bare -o x.png": "no option --bare; write --set bare=true instead",
    "show --sample life": "no option --sample; write sample:life instead",
    "show survey.safetensors --heads 0.0 --table pairs": "no option --table; write --style pairs instead",
    "explain Life --table pairs": "no option --table in attnviz explain",
    "samples": "no command 'samples'; write attnviz info samples instead",
    "help devices": "no command 'devices'; write attnviz info devices instead",
    "ablate --model trained speech.wav": "there is no file 'speech.wav'",
    "heads --file notes.txt --file two.txt --set labels=notes.txt": "only without other input; give one",
    "heads --batch notes.txt --set labels=notes.txt": "labels name the tokens of arrays, and --batch gives texts",
    "compare run.safetensors run.safetensors --causal": "--causal does not apply to a saved file",
    "browse run.safetensors --set seed=3": "",
    "show run.safetensors Life": "takes no 'Life' beside run.safetensors",
    "show Life --size 4:3": "--size has no effect in the terminal; use -o picture.png",
    "show Life --size 16:9": "--size has no effect in the terminal",
    "show Life --set annotate": "annotate has no effect in the terminal",
    "show Life --set dpi=90": "dpi has no effect in the terminal",
    "show Life --set per-slide=2 -o x.png": "per-slide has no effect in a figure; use -o picture.pptx",
    "show Life --set max-size=1MB -o x.svg": "use -o picture.html",
    "show Life --ascii -o x.png": "use the terminal",
    "show Life --json --cmap magma": "--cmap has no effect in a file of numbers",
    "show Life --title A -o x.csv": "--title has no effect in a file of numbers",
    "show Life --reduce mean:0.3": "unknown --reduce 'mean:0.3'",
    "show Life --reduce rollout:many": "residual is 'many'; give a number",
    "show Life --style wieghts": "unknown --style 'wieghts'; did you mean weights?",
    "show 'Life is short' --top 2": "--top needs --sort; add --sort previous",
    "heads 'Life is short' --top 2": "--top needs --sort; add --sort previous",
    "show Life --force": "--force needs --output; add --output picture.png",
    "show Life --heads 1 --heads 2": "--heads is given twice, 1 and 2; use --heads 1,2",
    "show Life --heads 1 --head 2": "use --head 1,2",
    "show Life --set seed=1 --set seed=2": "--set seed is given twice; use --set seed=2",
    "show Life -o x.png --output y.png": "is given twice",
    "show Life -o x.pt": "this command does not write .pt; use -o x.safetensors for a recording",
    "show Life --generate 0": "--generate 0 generates no token; give 1 or more",
    "show Life --model traned": "no model 'traned'; did you mean trained? Choose a folder",
    "show 'Life is short' --sort prev": "did you mean previous? Choose entropy, ",
    "show Life --colour sqrt": "no option --colour in attnviz show; did you mean --color-scale?",
    "show Life --hed 1": "did you mean --head?",
    "show Life --sed 1": "did you mean --set seed=VALUE?",
    "show Life --numheads=2": "did you mean --set num-heads=VALUE?",
    "show Life --set numheads=2": "did you mean num-heads?",
    "show Life --set seed": "--set seed has no value; write --set seed=VALUE",
    "show Life --set causal": "this command has no setting 'causal'; --help lists the settings",
    "show Life --num-heads 2": "no option --num-heads; write --set num-heads=2 instead",
    "show Life --title x --no-bias": "no option --no-bias; write --set bias=false instead",
    "show Life --xyzzy": "no option --xyzzy in attnviz show",
    "heads Life --style arcs": "heads takes no --style; attnviz show, ",
    "heads Life --set annotate -o x.png": "this command has no setting 'annotate'; --help",
    "show Life --step softmax": "show takes no --step; attnviz explain does",
    "explain Life --sort previous": "explain takes no --sort",
    "info samples --sort x": "info takes no --sort",
    "info samples x": "info takes no 'x'; leave it out",
    "info smples": "unknown topic 'smples'; did you mean samples?",
    "shwo Life": "did you mean show?",
    "paint": "no command 'paint'; did you mean explain?",
    "Life": "no command 'Life'; attnviz show Life draws a text or a recording",
    "show sample:lfe": "did you mean life?",
    "show sample:nothing-like-it": "choose life, ",
    "show Life --cmap virdis": "did you mean viridis?",
    "heads 'a b a b a b' --sort inducton": "did you mean induction?",
    "heads 'Life is short' --sort -entrop": "did you mean entropy?",
    "show 'Life is short' --sort sinc": "did you mean sink?",
    "explain Life --step softmx": "did you mean softmax? Choose tokens",
    "show Life --style score": "did you mean scores?",
    "show Life --reduce rolout": "did you mean rollout?",
    "show Life --theme drak -o x.png": "did you mean dark?",
    "show Life --style arc -o x.png": "did you mean arcs?",
    "show Life --color-scale lin": "unknown ",
    "show Life --set pool=maximum": "did you mean max?",
    "show Life --set init=uniforn": "did you mean uniform?",
    "show Life --dtype float23": "did you mean float32? Choose float32, float64, bfloat16 or float16",
    "show Life --device gpu": "unknown --device 'gpu'; choose auto, cpu",
    "show Life --set tokenizer=words": "unknown tokenizer 'words'; did you mean word? Choose word, char, byte",
    "show Life --set seed=x": "seed is 'x'; give a whole number",
    "show Life --set num-heads=many": "num-heads is 'many'; give a whole number",
    "show Life --set dpi=1.5 -o x.png": "dpi is '1.5'; give a whole number",
    "show Life --set temperature=warm": "temperature is 'warm'; give a number",
    "show Life --set font-size=big -o x.png": "font-size is 'big'; give a number",
    "show Life --seed": "no option --seed; write --set seed=VALUE instead",
    "show Life -o": "-o needs a value; write -o FILE",
    "show Life --set": "--set needs a value; write --set NAME=VALUE",
    "show --file": "--file needs a value; write --file FILE",
    "show photo.jpg --model ./vit": "there is no file 'photo.jpg'; give one that is here",
    "show Life --set seed=-1": "seed -1 is out of range; give 0 to",
    "show Life --set num-heads=0": "num-heads 0 is out of range",
    "show Life --set dropout=1": "give a number from 0 to below 1",
    "show Life --set dropout=nan": "is out of range",
    "show Life --set temperature=0": "give a number above 0",
    "show Life --set scale=big": "choose sqrt, none or a number such as 0.125",
    "show Life --set embed-dim=10 --set num-heads=3": "use --set embed-dim=9",
    "show Life --size huge -o x.png": "is not a size",
    "show Life --size 1x1 -o x.png": "--size '1x1' is 1 x 1 inches; choose 2 to 60 inches a side",
    "show Life --limits 0.5:0.5": "--limits '0.5:0.5': low and high are equal; write 0:0.5",
    "show Life --limits 1:0": "--limits '1:0' are the wrong way round; write 0:1",
    "show Life --limits none": "--limits 'none' cannot be read; choose shared, head or two numbers such as 0:0.5",
    "show Life --set max-size=big -o x.html": "max-size 'big' is not a file size; give 50MB, 500kB or 1.5GB",
    "show Life --set mark=( -o x.png": "",
    "show Life --heads 9": "no head 9; there are 0-3",
    "show Life --heads 3-1": "counts backwards in '3-1'; write 1-3",
    "show Life --heads a": "is not a list of numbers; write one such as 0-3,7",
    "show Life --heads 0.1,2": "write 4.11,9.6 (layer.head) or 0-3,7",
    "show Life --layers 4": "no layer 4; there is only 0",
    "show Life --queries 5-9": "is not a range of tokens; write 5, 10:40 or :20",
    "show Life --queries 4:9": "no tokens at --queries 4:9; there is only one, so use 0:1",
    "show Life --query none": "none",
    "explain Life --head 0-3": "is not one head; give 1 or 0.1 (layer.head)",
    "explain Life --head 'picture 0.1'": "give 0.1, which is of the picture tower if the input is only a picture",
    "explain Life --head a": "--head 'a' is not one head; give 1 or 0.1 (layer.head)",
    "explain Life --head 9": "no head in layer 0: 9; there are 0-3",
    "explain Life --head 2.0": "no layer 2; there is only 0 (counted from 0)",
    "explain Life --head decoder:0.1": "names a part of the model; give 0.1, and choose the part with --attention",
    "explain Life --step magic": "unknown --step 'magic'; choose tokens, embedding, projections, heads, scores",
    "show Life --queries 2:1": "--queries 2:1 counts backwards; write 1:2",
    "show Life --style overlay": "use -o overlay.svg (.png .svg .pdf .pptx)",
    "show Life -o fig.": "use -o fig.png",
    "show Life -o .png": "use -o picture.png",
    "hep": "did you mean help?",
    "show Life --model ''": "--model is empty; choose seeded, trained, trained-picture or a folder",
    "why Life --model seeded": "is untrained, so effects on its output show nothing; use --model trained",
    "show Life --names absent.names": "there is no file 'absent.names'",
    "show Life --style pairs": "counts pairs over the texts of a survey, and this is no survey; use --style weights",
    "show --file run.safetensors": "'run.safetensors' is a file of tensors; give a saved recording without --file",
    "show Life -o fig": "'fig' has no suffix, which picks the format; use -o fig.png",
    "show Life -o folder": "'folder' is a folder; use -o folder/picture.png",
    "show Life -o folder/": "use -o folder/picture.png",
    "show Life -o .": "'.' is a folder; use -o picture.png",
    "heads Life -o atlas.png": "give a text of two tokens or more",
    "heads 'Life is short' -o folder": "use -o folder/atlas.png",
    "explain Life -o folder": "use -o folder/notes.html",
    "heads Life -o x.npz": "choose .txt, .png, .svg, .pdf, .html, .pptx, .csv or .json",
    "explain Life -o x.png": "choose .txt, .html or .md",
    "heads Life -o run2.safetensors": "use attnviz show TEXT -o run2.safetensors",
    "show Life -o x.pgn": "did you mean .png?",
    "show Life -o x.gif": "a film shows two recordings or more, or with --style steps what one wrote",
    "heads Life -o x.gif": ".gif is a film, which attnviz show draws of several recordings, or of one with --style",
    "show run.safetensors run.safetensors": "several recordings are a film; use -o film.gif or film.apng",
    "show run.safetensors run.safetensors -o x.gif --sort sink": "--sort does not apply to a film; leave it out",
    "show Life -o nowhere/x.png": "no folder 'nowhere'",
    "show Life -o taken.png": "'taken.png' exists; --force replaces it",
    "show Life -o x.png --json": "use one of them",
    "show Life -o -.safetensors": "use -o run.safetensors",
    "show Life -o run2.safetensors --json": "both name the output",
    "show Life --set half": "half is for a recording, which -o run.safetensors writes; leave it out",
    "show Life -o run2.safetensors --theme dark": "--theme changes nothing in a recording, which holds all numbers",
    "show run.safetensors -o run2.safetensors": "attnviz show run.safetensors draws it",
    "show Life --file notes.txt": "TEXT and --file both give the input; use one of them",
    "show Life sample:life": "TEXT and a sample both give the input",
    "show --file gone.txt": "there is no file 'gone.txt'",
    "show --file folder": "'folder' is a folder",
    "show --batch notes.txt --file notes.txt": "--file and --batch both give the input",
    'show ""': "no tokens in an empty text",
    'show " "': "no tokens in white space",
    "compare Life": "nothing to compare; add --causal",
    "compare Life --model trained": "--with TEXT or --with-model MODEL",
    'compare Life --with "Life is"': "A has 1 tokens and B has 2",
    "show Life --model trained --set seed=3": "seed does not apply to --model trained",
    "show Life --model trained --set seed=0": "seed does not apply to --model trained",
    "show Life --model trained --causal": "--causal does not apply to --model trained",
    "show Life --heads 0,0": "--heads '0,0' names 0 more than once; write 0",
    "show Life --heads 0.1,0.1": "--heads '0.1,0.1' names 0.1 more than once; write 0.1",
    "show Life --layers 0-2,1": "--layers '0-2,1' names 1 more than once; write 0-2",
    "show Life --generate 3": "--generate does not apply to the default model; use it with",
    "show Life --model ./gone": "no folder './gone'",
    "show Life --style arcs": "-o arcs.svg",
    "show Life --model mine.py": "--model mine.py names no function of a Python file; write --model mine.py:FUNCTION",
    "show Life --model mine.py::build": "names no function of a Python file",
    "show Life --model mine:build": "FILE.py:FUNCTION or the folder",
    "show Life --model absent_model.py:build": "there is no file 'absent_model.py'; give a Python file",
    "show Life --model gone.gguf": "there is no file 'gone.gguf'; give the folder of a model, or a .gguf file",
    "why Life --model ./gone": "no folder './gone'",
    "why Life --model run2.safetensors": "there is no file 'run2.safetensors'",
    "why Life -o x.gif": "use why.png",
    "why 'a b a' --cmap magma": "--cmap has no effect in a picture of changes",
    "why 'The king lives. The king' --heads 0.0": "choose where units look; add --by sentences, or leave them out",
    "why 'a. b.' --by sentences --token a": "--token is about one token, and --by sentences about whole units",
    "why Life --step softmax": "why takes no --step; attnviz explain does",
    "why 'a b a' --tokn a": "did you mean --token?",
    "heads 'a b c' --metric mine.py:build": "the first parameter of build is missing; name it rows, grid or columns",
    "heads --types --model trained --metric mine.py:mass": "mass takes rows, as a metric does, and --types needs",
    "show Life --context Leben --causal": "leave it out",
    "show Life -- model trained": "-- ends the options, so 'model' is read as a text; write --model, without the space",
    "show Life --heads=0.0 ,0.1": "a list has no spaces; write --heads=0.0,0.1",
    "show Life --heads 0.0, 0.1": "a list has no spaces; write 0.0,0.1",
    "show Life --heads": "--heads needs a value; write --heads HEADS",
    "explain Life --pair a": "--pair needs 2 values; write --pair PAIR PAIR",
    "help paint": "no command 'paint'; did you mean explain? Choose show, heads, ",
    "help foo": "no command 'foo'; choose show, heads, ",
    "show run.safetensor": "there is no file 'run.safetensor'; did you mean run.safetensors?",
    "show --file note.txt": "there is no file 'note.txt'; did you mean notes.txt?",
    "show Life --model run.safetensors": "is a recording, which needs no model; attnviz show run.safetensors draws it",
    "show Life --title ''": "--title is empty; write something after it, or leave it out",
    "show Life --filter ' '": "--filter is empty",
    "show Life --by ''": "--by is empty",
    "show Life --by turns": "--by turns needs a chat; give messages as JSON, or add --chat",
    "show Life --by passages": "--by passages needs passages; add --passages docs/*.txt",
    "heads 'Life is short' --filter 'prevs<2'": "unknown metric 'prevs'; did you mean previous?",
    "compare Life --causal --filter 'sink>1'": "unknown metric 'sink'; choose change",
    "explain Life --step composition --pair a b": "--step composition and --pair each choose one step",
    "heads --types": "the seeded model is untrained, and the battery needs a trained one; use --model trained or",
    "ablate Life --model trained --metric los": "unknown --metric 'los'; did you mean loss? Choose loss, kl, ",
    "show Life --query she --model trained": "no query 'she' among the tokens",
    "show Life --chat --model ./model": "this model has no chat template; use a model made for chats",
    "show --file latin.txt": "'latin.txt' is not UTF-8 text",
    "show Life -o x.tiff": "unknown suffix '.tiff'; choose .txt",
    "show x.npy --heads 0 -o new.safetensors": "arrays are saved whole; choose layers and heads with attnviz",
    "show run.safetensors --layers 2": "no layer 2; there is only 0",
    "show 'a cat. a cat' --style steps": "steps need a model that writes from left to right",
    "show 'a cat. a cat' --style steps --causal --by turns": "--by turns needs a chat",
    "show gone.safetensors run.safetensors -o x.gif": "there is no file 'gone.safetensors'",
    "show Life --by texts": "--by texts matches nothing in the text; choose tokens, words, sentences, lines, ",
    "show 'Life is short' --by wrods": "did you mean words? Choose tokens, words",
    "show Life --by Verse": "--by Verse matches nothing in the text; choose tokens, words,",
    "show Life --by '('": "--by '(' is not a regular expression",
    "show Life --by lines --style both": "--by lines joins tokens, and only tokens have scores; use",
    "show Life --passages notes.txt --by passages": "does not read --passages",
    "show run.safetensors --passages notes.txt": "come before a text, and 'run.safetensors' is no plain text",
    "show --batch two.txt --passages notes.txt": "--passages stand before one text, and --batch gives several",
    "heads --file notes.txt --file two.txt --passages notes.txt": "--passages stand before one text; give one",
    "heads run.safetensors --sort entropi": "unknown metric 'entropi'; did you mean entropy? Choose entropy, ",
    "heads run.safetensors --sort pair": "no head has the metric 'pair' here: it needs a pair of texts",
    "show Life --style all": "unknown --style 'all'; choose heatmap, arcs, text, overlay, scores",
}
# What is typed, the advice, and what somebody types who takes it.
ADVISED = {
    "show Life -o r.safetensors --queries 0:1": (
        "give it to attnviz show r.safetensors",
        "show run.safetensors --queries 0:1",
    ),
    "compare run.safetensors Life": ("give it after --with", "compare run.safetensors --with 'Time is money'"),
    "compare run.safetensors": ("of the same kind after --with", "compare run.safetensors --with run.safetensors"),
    "compare run.safetensors --with-model trained": (
        "leave out --with-model",
        "compare run.safetensors run.safetensors",
    ),
    "compare Life --causal --sort previous": ("--sort change", "compare Life --causal --sort change"),
    "explain Life --json": ("attnviz show --json prints", "show Life --json"),
    "explain Life --step composition": (
        "use --model trained --head 1.1",
        "explain Life --step composition --model trained --head 1.1",
    ),
    "show Life --json -o -.svg": (
        "--json and -o '-.svg' both name the output; use one of them",
        "show Life -o -.svg",
    ),
    "show Life -o -": (
        "-o - writes to standard output and names no format; use -o -.svg",
        "show Life -o -.svg",
    ),
    "show Life -o r.safetensors --set half": (
        "use --set dense=false",
        "show Life -o r.safetensors --set half --set dense=false",
    ),
    "show Life --set dense=false --set dropout=0.5": ("--set dropout=0", "show Life --set dense=false --set dropout=0"),
    "show Life --by words --style scores": ("use --style weights", "show Life --by words --style weights"),
    "show --batch two.txt --reduce mean": ("record them one by one", "show --file notes.txt --reduce mean"),
    "show --batch two.txt --model trained": ("leave out --model", "show --batch two.txt"),
    "show 'a b' --reduce rollout:1": (
        "give a number from 0 to below 1",
        "show 'a b' --reduce rollout:0.9",
    ),
    "show 'a b' --reduce mean --style scores": ("use --style weights", "show 'a b' --reduce mean --style weights"),
    "show 'a b' --set num-layers=3 --layers 0,2 --reduce rollout": (
        "rollout needs layers that follow one another, not 0, 2; choose 0-2",
        "show 'a b' --set num-layers=3 --layers 0-2 --reduce rollout",
    ),
    "show 'a b' --context c --reduce rollout": ("--reduce mean or max", "show 'a b' --context c --reduce max"),
    "heads 'a b c' --filter kind:x": ("write kind:self or kind:cross", "heads 'a b c' --filter kind:self"),
    "heads 'a b c' --filter 'previous>0.9'": ("leave it out", "heads 'a b c'"),
    "heads 'a b' --sort previous --top 0": (
        "--top 0 leaves no head; give 1 or more",
        "heads 'a b' --sort previous --top 1",
    ),
    "show Life --set mark=lines -o x.csv": ("use -o map.png or the terminal", "show Life --set mark=lines"),
    "show sample:long --style arcs -o x.svg": (
        "use --queries 0:40 --keys 0:40",
        "show sample:long --style arcs -o x.svg --queries 0:40 --keys 0:40",
    ),
    "show 'a b' --query a --style weights -o x.svg": (
        "--style text draws no numbers",
        "show 'a b' --style weights -o x.svg",
    ),
    "show 'a b' --query a --style arcs -o x.svg": ("use one of them", "show 'a b' --query a"),
    "browse run.safetensors --query Life": ("use it with attnviz show", "show run.safetensors --query Life"),
    "show Life --size 50x50 --set dpi=2400 -o x.png": ("use --set dpi=244", "show Life --set dpi=90 -o x.png"),
    "show Life --set max-size=1kB -o x.html": ("choose 100kB or more", "show Life --set max-size=100kB -o x.html"),
    "show Life --style scores --color-scale log -o x.svg": (
        "use linear, or --style weights",
        "show Life --style scores --color-scale linear -o x.svg",
    ),
    "show Life --limits 0:1 --color-scale log": (
        "give positive numbers: 0.001:1",
        "show Life --limits 0.001:1 --color-scale log",
    ),
    "show Life --dtype float16 --set scale=1e9": ("use --dtype float32", "show Life --dtype float32 --set scale=1e9"),
    "show --file notes.txt --file two.txt": (
        "attnviz heads and attnviz ablate take",
        "heads --file notes.txt --file two.txt",
    ),
    "show Life --chat": ("use it with a Hugging Face model", "show Life"),
    "explain x.npz": ("give the text and --model", "explain Life"),
    "ablate run.safetensors": ("give a text", "ablate 'a b a b' --model trained"),
    "ablate Life": ("--model trained or", "ablate 'a b a b' --model trained"),
    "explain Life --step softmax --pair Life Life": ("give one of them", "explain Life --pair Life Life"),
    "explain Life -o -.svg": ("choose .txt, .html or .md", "explain Life -o -.md"),
    "heads 'a b c' --filter 'entropi>0'": ("did you mean entropy?", "heads 'a b c' --filter 'entropy>0'"),
    "heads 'a b c' --filter clear": ("leaves none of 4 heads; leave it out", "heads 'a b c'"),
    "heads 'a b c' --filter 'entropy>'": ("is no test of a head; ", "heads 'a b c' --filter 'entropy>0.5'"),
    "show 'a b c' --sort induction": ("no head has the metric 'induction' here", "show 'a b a' --sort induction"),
    "show Life --of contribution": ("weights or contributions", "show Life --of contributions"),
    "show Life --of contributions --color-scale lift": (
        "use --color-scale log",
        "show Life --of contributions --color-scale log",
    ),
    "show Life --of contributions --limits 0:1 -o x.html": (
        "use --limits shared",
        "show Life --of contributions --limits shared -o x.html",
    ),
    "show Life --notes notes.txt -o x.html": (
        "--notes: line 1 is not a note; write a place and a text, such as '#head=3.4 Looks at the previous word.'",
        "show Life -o x.html",
    ),
    "show Life --notes gone.txt -o x.html": ("there is no file", "show Life -o x.html"),
    "show Life --context ' '": ("give a text with at least one word", "show Life --context Leben"),
    "show Life --query 9": ("no query 9 among 1 tokens; choose 0 to 0", "show Life --query 0"),
    "show Life --set num-heads=40 --set embed-dim=80 --style arcs -o x.svg": (
        "choose some, such as --heads 0.3,1.2",
        "show Life --set num-heads=40 --set embed-dim=80 --heads 0,1 --style arcs -o x.svg",
    ),
    "show Life --heads 1 --heads 1": ("--heads is given twice, 1 and 1; use --heads 1", "show Life --heads 1"),
    "show Life --heads 0-99999999": ("write one such as 0-3,7", "show Life --heads 0-3"),
    "show Life --device meta": ("unknown --device", "show Life --device cpu"),
    "show --file binary.txt": ("is binary; give a UTF-8 text", "show --file notes.txt"),
    "show --batch empty.txt": ("write one text per line", "show --batch two.txt"),
    "show Life --set mark=Chapter": ("lines, paragraphs or", "show Life --set mark=lines"),
    "show Life --size column -o x.pptx": ("slides need a height; use 16:9", "show Life --size 16:9 -o x.svg"),
    "show Life --size 1in -o x.svg": ("choose 2in to 60in", "show Life --size 2in -o x.svg"),
    "show 'a b c d e f g h' --size 2in --set bare --style both -o x.svg": (
        "leaves out the remark that says so; use fewer tokens or heads",
        "show 'a b' --size 2in --set bare --set annotate --heads 0 -o x.svg",
    ),
    "survey notes.txt --model trained": (
        "use -o survey.safetensors",
        "survey notes.txt --model trained -o new.safetensors",
    ),
    "survey --model trained -o s.safetensors": ("give a file, a folder or - for standard input", "show Life"),
    "survey notes.txt --model trained --tokens many -o s.safetensors": ("give one such as 500k or 10M", "show Life"),
    "survey notes.txt --model seeded -o s.safetensors": ("use --model trained or", "heads survey.safetensors"),
    "survey notes.txt --model trained --column text -o s.safetensors": ("leave it out", "heads survey.safetensors"),
    "survey folder --model trained -o s.safetensors": (".txt, .jsonl, .csv,", "heads survey.safetensors"),
    "survey x.npz --model trained -o s.safetensors": (".txt, .jsonl, .csv,", "heads survey.safetensors"),
    "survey empty.txt --model trained -o s.safetensors": ("(2 empty)", "heads survey.safetensors"),
    "survey notes.txt --model trained --token-class years -o s.safetensors": (
        "write it as --token-class years=[0-9]{4}",
        "survey notes.txt --model trained --token-class years=[0-9]{4} -o s.safetensors",
    ),
    "survey notes.txt --model trained --token-class special=x -o s.safetensors": (
        "choose another name",
        "survey notes.txt --model trained --token-class mine=x -o s.safetensors",
    ),
    "survey notes.txt --model trained -o survey.safetensors": (
        "--force replaces it",
        "survey notes.txt --model trained -o survey.safetensors --force",
    ),
    "survey notes.txt --model trained --resume -o survey.safetensors": (
        "attnviz heads survey.safetensors lists its heads",
        "heads survey.safetensors",
    ),
    "show survey.safetensors --style points:previous": (
        "use --style points:previous,sink",
        "show survey.safetensors --style points:previous,sink -o points.png",
    ),
    "show survey.safetensors --style points:previous,sinc -o p.png": (
        "did you mean sink?",
        "show survey.safetensors --style points:previous,sink -o p.png",
    ),
    "show survey.safetensors --style points:previous,sink": (
        "-o heads.png, .svg,",
        "show survey.safetensors --style points:previous,sink -o heads.png",
    ),
    "show 'a b a' --style points:previous,sink": ("to order heads use --sort previous", "show 'a b a' --sort previous"),
    "show survey.safetensors --style arcs": ("the card of a head has commands", "show survey.safetensors --heads 0.0"),
    "show survey.safetensors --set pool=max": (
        "the card of a head has commands",
        "show survey.safetensors --heads 0.0",
    ),
    "heads 'a b a' --queries 0:2": ("measured over their whole maps; leave it out", "heads 'a b a'"),
    "heads survey.safetensors --keys 0:1": ("--keys needs the maps of one input", "heads survey.safetensors"),
    "heads survey.safetensors --effects effects.json": ("this is a survey; leave it out", "heads survey.safetensors"),
    "heads survey.safetensors --reference gone.vtt": ("this is a survey; leave it out", "heads survey.safetensors"),
    "compare survey.safetensors run.safetensors": (
        "takes two surveys",
        "compare survey.safetensors survey.safetensors",
    ),
    "compare survey.safetensors survey.safetensors --by words": (
        "--by needs the maps of one input",
        "compare survey.safetensors survey.safetensors",
    ),
    "compare survey.safetensors survey.safetensors --names names.txt": (
        "--names has no effect in a comparison of surveys; leave it out",
        "compare survey.safetensors survey.safetensors",
    ),
    "compare survey.safetensors survey.safetensors --names names.txt -o -.svg": (
        "--names has no effect in a comparison of surveys; leave it out",
        "compare survey.safetensors survey.safetensors -o -.svg",
    ),
    "show 'a b' --model trained --causal": ("use it with the seeded model", "show 'a b' --causal"),
    "show 'a b' --model trained --set num-heads=3": (
        "num-heads does not apply to --model trained",
        "show 'a b' --set num-heads=3 --set embed-dim=6",
    ),
    "ablate 'a b a b' --model trained --metric los": (
        "did you mean loss?",
        "ablate 'a b a b' --model trained --metric loss --heads 0.0",
    ),
    "ablate 'a b a b' --model trained --replace-by men": (
        "did you mean mean? Choose zero, mean or corrupt, or a longer text",
        "ablate 'a b a b' --model trained --replace-by mean --heads 0.0",
    ),
    "why 'a b a' --replace-by Zeros": ("did you mean zero?", "why 'a b a' --replace-by zero"),
    "ablate 'a b a b' --model trained --top 0": (
        "--top 0 is out of range; give 1 to",
        "ablate 'a b a b' --model trained --top 1",
    ),
    "ablate 'a b a b' --model trained --sets 0.0+9.9": (
        "no head '9.9'; layers 0-1 have heads 0-1; choose one such as 1.1",
        "ablate 'a b a b' --model trained --sets 0.0+1.1",
    ),
    "why 'a b a' --token zzz": ("no token 'zzz' in the text", "why 'a b a' --token b"),
    "why 'a b a' --token b --versus b": ("give another token to compare with", "why 'a b a' --token b --versus a"),
    "why 'a b a' --queries 1-2": ("write 5, 10:40 or :20", "why 'a b a' --queries 2"),
    "why run.safetensors": ("is untrained", "why 'a b a'"),
    "heads 'a b a b' --effects run.safetensors": (
        "'run.safetensors' holds no effects of heads; give a file that attnviz ablate TEXT -o effects.json wrote",
        "heads 'a b a b' --effects effects.json --sort effect",
    ),
    "show run.safetensors --effects effects.json": (
        "use -o picture.html",
        "show run.safetensors --effects effects.json -o picture.html",
    ),
    "explain 'a b a' --step ablation": ("use --model trained", "explain 'a b a' --step ablation --model trained"),
    "show run.safetensors --of contributions": (
        "record it again with --of contributions",
        "show 'a b' --of contributions -o values.safetensors",
    ),
}
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
PROGRAM = typer.main.get_command(app)
# What only the tokens, the weights or the model tell: these lines are refused late.
TOLD_BY_THE_RUN = {
    "heads Life -o atlas.png",
    'compare Life --with "Life is"',
    "explain Life --head 9",
    "explain Life --step composition",
    "show Life -o r.safetensors --set half",
    "show 'a b' --set num-layers=3 --layers 0,2 --reduce rollout",
    "show 'a b' --context c --reduce rollout",
    "heads 'a b c' --filter 'previous>0.9'",
    "heads 'a b c' --filter clear",
    "show sample:long --style arcs -o x.svg",
    "show Life --style scores --color-scale log -o x.svg",
    "show 'a cat. a cat' --style steps",
    "show Life --by texts",
    "show Life --by Verse",
    "show 'Life is short' --by wrods",
    "heads --types --model trained --metric mine.py:mass",
    "show Life --dtype float16 --set scale=1e9",
    "show 'a b c' --sort induction",
    "show Life --set num-heads=40 --set embed-dim=80 --style arcs -o x.svg",
    "show Life --set mark=Chapter",
    "show 'a b c d e f g h' --size 2in --set bare --style both -o x.svg",
    "survey notes.txt --model trained --column text -o s.safetensors",
    "survey empty.txt --model trained -o s.safetensors",
    "ablate 'a b a b' --model trained --replace-by men",
    "ablate 'a b a b' --model trained --sets 0.0+9.9",
    "why 'a b a' --token zzz",
    "why 'a b a' --token b --versus b",
    "why 'a b a' --queries 9",
}
# What is advised in these words needs more than is here.
NOT_TYPED = ("docs/", "=VALUE", "NAME", "TEXT", "MODEL", "--model ./model")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, a recording, a model's folder and others."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "notes.txt").write_text("Life is short\n", encoding="utf-8")
    (folder / "table.csv").write_text("a,b\n", encoding="utf-8")
    (folder / "two.txt").write_text("Life is short\nTime is money\n", encoding="utf-8")
    (folder / "taken.png").write_bytes(b"precious")
    np.savez(folder / "x.npz", a=np.ones(3))
    (folder / "binary.txt").write_bytes(b"\x00\x01\x02")
    (folder / "latin.txt").write_bytes("café".encode("latin-1"))
    (folder / "mine.py").write_text(
        "def build():\n    return 1\n\n\ndef mass(rows):\n    return rows\n", encoding="utf-8"
    )
    (folder / "empty.txt").write_bytes(b"\n\n")
    for name in ("folder", "model"):
        (folder / name).mkdir()
    (folder / "model" / "config.json").write_text("{}", encoding="utf-8")
    assert main(["show", "Life is short", "-o", str(folder / "run.safetensors")]) == 0
    survey = ["survey", str(folder / "two.txt"), "--model", "trained", "-o", str(folder / "survey.safetensors")]
    assert main(survey) == 0
    assert main(["ablate", "a b a b", "--model", "trained", "-o", str(folder / "effects.json")]) == 0
    return folder


@pytest.fixture
def run(place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in that folder."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("ATTNVIZ_DPI", "30")  # pictures of few pixels
    monkeypatch.setattr("typer.main.get_command", lambda _: PROGRAM)
    monkeypatch.setattr("attnviz.cli.commands.program", lambda _: PROGRAM)  # which takes its time to build
    monkeypatch.setattr("attnviz.cli.runs.is_piped", lambda: False)
    monkeypatch.setattr("attnviz.browse.start.refuse_browse", lambda: None)
    monkeypatch.setattr("attnviz.browse.start.browse", lambda *_: 0)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, file, **__: file.write(PIXEL))  # once laid out
    capfd.readouterr()

    def run(line: str) -> tuple[int, str]:
        code = main(shlex.split(line))
        return code, capfd.readouterr().err

    return run


SAID: dict[str, str] = {}  # by line: what the first test read, for the second


@pytest.mark.slow
def test_wrong_command_lines_are_one_line_each_and_write_nothing(run: Run, place: Path) -> None:
    assert len(WRONG) > 111
    before = sorted(path.name for path in place.rglob("*"))
    other = {}
    for line, says in WRONG.items():
        code, error = run(line)
        said = [each for each in error.splitlines() if "no text given" not in each]
        assert code in (1, 2), line
        assert len(said) == 1, (line, error)
        assert said[0].startswith("attnviz: "), line
        SAID[line] = error
        if says not in said[0]:
            other[line] = said[0]
    assert not other, json.dumps(other)
    assert sorted(path.name for path in place.rglob("*")) == before


def test_what_the_command_line_alone_tells_is_refused_before_torch_is_imported(place: Path) -> None:
    lines = [line for line in (*WRONG, *ADVISED) if line not in TOLD_BY_THE_RUN]
    code = f"""
import shlex, sys
from attnviz.cli.commands import main
class Late(BaseException):
    pass
class Finder:
    def find_spec(self, name, *_):
        if name == "torch":
            raise Late
sys.meta_path.insert(0, Finder())
for line in {lines!r}:
    try:
        assert main(shlex.split(line)) in (1, 2), line
    except Late:
        print("LATE", line)
print("END")
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=False)
    assert [line for line in result.stdout.splitlines() if line.startswith(("LATE", "END"))] == ["END"], result.stderr
    assert len(lines) > 250


def remedies(line: str, said: str) -> list[str]:
    """The command lines that a refusal advises, as somebody would type them."""
    found = []
    if match := re.search(r'quote the text: attnviz \w+ "([^"]*)"', said):
        found.append(line.replace(match[1], f'"{match[1]}"'))
    for flag, value in re.findall(
        r"(?:use|add|as|[;,](?= \S+ \S+ works)) (--set [a-z-]+=|--[a-z-]+ )([\w.:/,]*[\w/])", said
    ):
        if flag.startswith("--set "):
            found.append(re.sub(rf" {flag}\S+", "", line) + f" {flag}{value}")
            continue
        flag = flag.rstrip()
        bare = re.sub(rf" (?:{flag}|{flag}s|{flag.removesuffix('s')})(?:=| )\S+", "", line)
        found.append(f"{bare.replace(' -o x.png', '') if flag == '--output' else bare} {flag} {value}")
    for path in re.findall(r"(?:(?<=use )|(?<!TEXT )(?=-o \S+ works))-o (\S+?)(?:,|\s|$)", said):
        found.append(re.sub(r" (-o|--output) \S+", "", line) + f" -o {path}")
    if "reads it" in said:
        file = re.search(r"--file (\S+) reads", said)
        assert file is not None
        found.append(line.replace(f" {file[1]}", f" --file {file[1]}"))
    for name in re.findall(r"did you mean (\S+)\?", said):
        wrong = re.search(
            r"(?:no option|no setting|no command|unknown [\w -]+?|no sample|no model|no file|--by) '?(\S+?)'?"
            r"(?:;| in | matches )",
            said,
        )
        assert wrong is not None, said
        found.append(line.replace(wrong[1], name))
    if "leave it out" in said and (
        flag_given := re.search(r"(--[a-z-]+) (?:does not apply to a saved file|is not seen)", said)
    ):
        found.append(re.sub(rf" {flag_given[1]}(?: (?!-)\S+)?", "", line))
    if match := re.search(r"two numbers (?:such )?as (0:0\.5)|equal; (?:\w+ )?(\S+)|round; (?:\w+ )?(\S+)", said):
        found.append(re.sub(r"--limits \S+", f"--limits {match[1] or match[2] or match[3]}", line))
    if match := re.search(r"use (\d+:\d+) or a part|counts backwards in \S+; write (\S+)", said):
        found.append(re.sub(r"(--queries|--heads) \S+", rf"\1 {match[1] or match[2]}", line))
    if match := re.search(r"attnviz: no option (--[a-z-]+); write (.+) instead", said):
        found.append(re.sub(rf"{match[1]}(?:[ =](?!-)\S+)?", match[2], line))
    if "--force replaces it" in said:
        found.append(f"{line} --force")
    return [each for each in found if not any(word in each for word in NOT_TYPED)]


@pytest.mark.slow
def test_what_a_refusal_advises_is_accepted_when_it_is_typed(run: Run, place: Path) -> None:
    recording = (place / "run.safetensors").read_bytes()
    here, refused = set(place.rglob("*")), []
    advised = {remedy: line for line in WRONG for remedy in remedies(line, SAID.get(line) or run(line)[1])}
    for remedy, line in advised.items():
        (place / "run.safetensors").unlink()
        if "run.safetensors" in remedy.partition(" -o")[0]:
            (place / "run.safetensors").write_bytes(recording)
        code, said = run(remedy)
        if code:
            refused.append((line, remedy, said))
        for path in set(place.rglob("*")) - here:
            path.unlink()
        (place / "taken.png").write_bytes(b"precious")
        (place / "run.safetensors").write_bytes(recording)
    assert refused == [], "\n".join(map(str, refused))
    assert len(advised) > 40


@pytest.mark.slow
def test_what_a_refusal_advises_in_other_words_is_accepted_too(run: Run, place: Path) -> None:
    here = set(place.rglob("*"))
    other = {}
    for line, (says, remedy) in ADVISED.items():
        code, said = run(line)
        assert code == 1, line
        assert said.count("\n") == 1, (line, said)
        if says not in said:
            other[line] = said
        assert run(remedy) == (0, ""), remedy
        for path in set(place.rglob("*")) - here:
            path.unlink()
    assert not other, json.dumps(other)


def test_nothing_to_compare_is_said_before_a_text_is_chosen(run: Run) -> None:
    for line in ("compare", "compare --model trained"):
        code, said = run(line)
        assert (code, said.count("\n")) == (1, 1), said
        assert said.startswith("attnviz: nothing to compare; add --")
        assert ("--causal" in said) == ("trained" not in line)


@pytest.mark.parametrize(
    "line", ["show Life --cmap magma", "heads Life --limits 0:0.3", "heads survey.safetensors --cmap magma"]
)
def test_colours_that_were_typed_where_there_are_none_are_said(
    run: Run, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    code, said = run(line)
    assert code == 0
    assert f"{line.split()[2]} changes colours, and there are none here; use -o picture.png" in said
    name, value = line.split()[2][2:], line.split()[3]
    monkeypatch.setenv(f"ATTNVIZ_{name.upper()}", value)
    assert run(line.partition(" --")[0]) == (0, "")


def test_one_head_or_one_layer_may_be_named_by_either_number(run: Run) -> None:
    for line in ("show Life --head 1", "show Life --heads 1", "show Life --layer 0", "explain Life --heads 1"):
        assert run(line)[0] == 0


@pytest.mark.parametrize("name", declared_options(Look))
def test_options_of_the_look_name_kinds_of_media_that_there_are(name: str) -> None:
    assert {row.kind for row in FORMATS.values()} == set(KINDS)
    assert set(declared_options(Look)[name].option.media) <= set(KINDS)


def test_a_users_own_default_is_never_refused(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNVIZ_SIZE", "4:3")
    monkeypatch.setenv("ATTNVIZ_MODEL", "trained")
    assert run("show abcabc")[0] == 0
    assert run("show run.safetensors")[0] == 0
    assert run("show run.safetensors --size 4:3")[0] == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("heads 'a b a b' --color-scale log --cmap magma", "--cmap and --color-scale change colours"),
        ("show 'a b a b' --style text --limits 0:0.3", "--limits changes colours"),
    ],
)
def test_every_option_of_colours_is_said_where_there_are_none(
    in_folder: Path, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(line)) == 0
    assert said in capsys.readouterr().err


def test_a_survey_is_refused_in_a_picture(run: Run) -> None:
    code, error = run("survey two.txt --model trained -o y.png")
    assert code == 1
    assert "a survey is a .safetensors file, and not 'y.png'; use -o survey.safetensors" in error
