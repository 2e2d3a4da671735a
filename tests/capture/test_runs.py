"""The inputs of the parts of a model are noted when the parts are called by themselves."""

import torch
from torch import nn

from attnviz.capture.runs import RunCounter


def test_axes_of_inputs_are_those_of_the_part_around_a_module() -> None:
    model = nn.ModuleDict({"encoder": nn.Sequential(nn.Identity()), "decoder": nn.Sequential(nn.Identity())})
    names = {id(module): name for name, module in model.named_modules()}
    runs = RunCounter(model, names, lambda: None, lambda module: None)
    for name, shape in (("encoder", (7, 2, 3)), ("decoder", (5, 2, 3))):
        runs.enter(model[name], (torch.zeros(shape),))
        runs.leave(model[name])
    assert runs.second_axes_of("encoder.0") == {(2, 7)}
    assert runs.second_axes_of("decoder.0") == {(2, 5)}
    assert runs.second_axes_of("head") == set()
    assert (runs.texts_of("encoder.0"), runs.texts_of("head")) == (7, None)


def test_shapes_are_those_of_the_part_that_attends_if_the_model_is_called_with_named_arguments_alone() -> None:
    model = nn.ModuleDict({"body": nn.Sequential(nn.Identity())})
    names = {id(module): name for name, module in model.named_modules()}
    runs = RunCounter(model, names, lambda: None, lambda module: None)
    runs.enter(model)
    runs.enter(model["body"], (torch.zeros(7, 2, 3),))
    assert runs.shapes_of("body.0", ()) == [(7, 2)]
    assert runs.shapes_of("head", ()) == []
