"""One attention call: its mask, bias, softmax and modules."""
