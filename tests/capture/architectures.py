"""Small random models of many architectures, and inputs for them."""

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor

from tests.small_models import GROUPED, SMALL

QUERIES, SHORT, CONTEXT = 9, 6, 7  # tokens: of the texts, of the padded one, of what an encoder reads


@dataclass(frozen=True)
class Entry:
    """One architecture, small."""

    name: str  # of its config and model classes, without their endings
    config: dict[str, Any] = field(default_factory=dict)  # what makes it small
    model: str = ""
    attention: Any = None  # of an encoder-decoder, what is recorded
    # Where the reference stands in its output; empty where its eager path computes something else
    eager: str = "attentions"
    tolerance: float = 1e-5  # of weights
    pads: bool = True  # whether one of the two texts is padded
    since: int = 4  # the major version of transformers from which its eager path computes what runs

    @property
    def has_reference(self) -> bool:
        """Whether its eager path computes what runs."""
        return bool(self.eager) and int(transformers.__version__.partition(".")[0]) >= self.since

    @property
    def label(self) -> str:
        return self.name + (f"-{self.attention}" if self.attention else "") + ("" if self.eager else "-fidelity")


SEQ = {
    "vocab_size": 50, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 40,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
T5 = {
    "vocab_size": 50, "d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
REFORMER = {
    "vocab_size": 50,
    "hidden_size": 24,
    "num_attention_heads": 2,
    "attention_head_size": 12,
    "feed_forward_size": 32,
    "attn_layers": ["local", "lsh"],
    "axial_pos_embds": False,
    "max_position_embeddings": 64,
    "local_attn_chunk_length": 4,
    "lsh_attn_chunk_length": 4,
    "num_hashes": 1,
    "num_buckets": 2,
    "hash_seed": 0,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
BOTH = [("encoder", "encoder_attentions"), ("decoder", "decoder_attentions"), ("cross", "cross_attentions")]

ARCHITECTURES = [
    Entry("Bert", SMALL),
    Entry("Roberta", SMALL | {"pad_token_id": 1}),
    Entry("DistilBert", {"vocab_size": 50, "dim": 24, "hidden_dim": 32, "n_layers": 2, "n_heads": 4}),
    Entry("Albert", SMALL | {"embedding_size": 12}),
    Entry("Electra", SMALL | {"embedding_size": 12}),
    Entry("ModernBert", SMALL | {"local_attention": 4, "global_attn_every_n_layers": 2}),
    Entry("DebertaV2", SMALL | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}),
    Entry("MPNet", SMALL),
    Entry("XLNet", {"vocab_size": 50, "d_model": 24, "n_layer": 2, "n_head": 4, "d_inner": 32}),
    Entry("GPT2", {"vocab_size": 50, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 40}),
    Entry("GPTNeoX", SMALL),
    Entry("GPTJ", {"vocab_size": 50, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 40, "rotary_dim": 4}),
    Entry("OPT", SMALL | {"ffn_dim": 32, "word_embed_proj_dim": 24}),
    Entry("Bloom", {"vocab_size": 50, "hidden_size": 24, "n_layer": 2, "n_head": 4}),
    Entry("Mpt", {"vocab_size": 50, "d_model": 24, "n_layers": 2, "n_heads": 4, "max_seq_len": 40}),
    Entry("Falcon", SMALL | {"alibi": False, "new_decoder_architecture": False}),
    Entry("Falcon", SMALL | {"alibi": True, "multi_query": False}, eager=""),
    Entry("Llama", GROUPED),
    Entry("Mistral", GROUPED | {"sliding_window": 4}),
    Entry("Qwen2", GROUPED),
    Entry("Qwen3", GROUPED),
    Entry("Gemma2", GROUPED | {"sliding_window": 4, "query_pre_attn_scalar": 6}, since=5),
    Entry("Gemma3Text", GROUPED | {"sliding_window": 4, "query_pre_attn_scalar": 6}),
    Entry("Phi3", SMALL),
    Entry("Mixtral", GROUPED | EXPERTS),
    Entry("GptOss", GROUPED | EXPERTS | {"sliding_window": 4}),
    Entry(
        "DeepseekV3",
        SMALL
        | {
            "num_key_value_heads": 4,
            "q_lora_rank": 12,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "moe_intermediate_size": 16,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
    ),
    Entry(
        "Llama4Text",
        GROUPED | EXPERTS | {"intermediate_size_mlp": 32, "attention_chunk_size": 4, "num_experts_per_tok": 1},
        since=5,
    ),
    Entry(
        "Jamba",
        GROUPED
        | {
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 2,
            "use_mamba_kernels": False,
            "mamba_d_state": 4,
            "mamba_dt_rank": 4,
        },
    ),
    Entry("BigBird", SMALL | {"attention_type": "original_full"}),
    Entry("RoFormer", SMALL | {"embedding_size": 24}),
    Entry("GPTNeo", SMALL | {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 4}),
    Entry("CodeGen", {"vocab_size": 50, "n_embd": 24, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 40}),
    Entry("CTRL", {"vocab_size": 50, "n_embd": 24, "n_layer": 2, "n_head": 4, "dff": 32, "n_positions": 40}),
    Entry("XLM", {"vocab_size": 50, "emb_dim": 24, "n_layers": 2, "n_heads": 4}),
    *[Entry(name, GROUPED) for name in ("Cohere", "Olmo2", "Starcoder2", "Granite", "Glm")],
    Entry("StableLm", GROUPED, since=5),
    Entry("BioGpt", SMALL),
    Entry("GPTBigCode", {"vocab_size": 50, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 40}),
    *[Entry("T5", T5, attention=which, eager=where, tolerance=3e-5) for which, where in BOTH],
    *[Entry("Bart", SEQ, attention=which, eager=where) for which, where in BOTH],
    *[Entry("Marian", SEQ, attention=which, eager=where) for which, where in BOTH],
    *[
        Entry(
            "Whisper",
            SEQ | {"num_mel_bins": 8, "max_source_positions": CONTEXT, "max_target_positions": 40},
            attention=which,
            eager=where,
            pads=False,
        )
        for which, where in BOTH[1:]
    ],
    Entry("ViT", SMALL | {"image_size": 12, "patch_size": 4, "num_channels": 3}, pads=False),
    Entry("CLIPText", SMALL, eager="attentions"),
]


def build(entry: Entry, implementation: str | None = None) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{entry.name}Config")(**entry.config)
    if implementation is not None:
        config._attn_implementation = implementation
    model = getattr(transformers, f"{entry.name}Model")(config).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "norm" not in name.lower():
                weight.normal_(0, 2.0 / weight.shape[-1] ** 0.5 if "embed" not in name else 1.0)
    return model


def inputs_of(entry: Entry) -> dict[str, Tensor]:
    torch.manual_seed(2)
    if entry.name == "ViT":
        return {"pixel_values": torch.randn(2, 3, 12, 12)}
    ids = torch.randint(3, 50, (2, QUERIES))
    mask = torch.ones(2, QUERIES, dtype=torch.long)
    if entry.pads:
        mask[1, SHORT:] = 0
    if entry.name == "Whisper":
        return {"input_features": torch.randn(2, 8, 2 * CONTEXT), "decoder_input_ids": ids}
    if entry.attention is None:
        return {"input_ids": ids, "attention_mask": mask}
    context_mask = torch.ones(2, CONTEXT, dtype=torch.long)
    context_mask[1, 5:] = 0
    return {
        "input_ids": torch.randint(3, 50, (2, CONTEXT)),
        "attention_mask": context_mask,
        "decoder_input_ids": ids,
        "decoder_attention_mask": mask,
    }
