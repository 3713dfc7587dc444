"""Transformers and their parts."""

from __future__ import annotations

import torch
from torch import nn

from . import of, training

TOKENS = 64


def words(batch=2, length=32):
    return torch.randint(0, TOKENS, (batch, length))


@of("transformers")
def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=TOKENS, n_positions=32, n_embd=32, n_layer=2, n_head=2))
    x = words()
    return training(model, lambda: model(x, labels=x).loss)


@of("transformers")
def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(vocab_size=TOKENS, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64))
    x = words()
    return training(model, lambda: model(x, labels=x).loss)


@of("transformers")
def bert():
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(vocab_size=TOKENS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                       intermediate_size=64, max_position_embeddings=64))
    x = words()
    return training(model, lambda: model(x, labels=x).loss)


@of("transformers")
def mamba():
    from transformers import MambaConfig, MambaForCausalLM

    model = MambaForCausalLM(MambaConfig(vocab_size=TOKENS, hidden_size=16, num_hidden_layers=1, state_size=4))
    x = words(2, 12)
    return training(model, lambda: model(x, labels=x).loss)


@of("x-transformers")
def decoder():
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True)
    model, x = TransformerWrapper(num_tokens=TOKENS, max_seq_len=32, attn_layers=layers), words()
    return training(model, lambda: nn.functional.cross_entropy(model(x[:, :-1]).transpose(1, 2), x[:, 1:]))


@of("rotary-embedding-torch")
def rotary_attention():
    from rotary_embedding_torch import RotaryEmbedding

    turn, x, project = RotaryEmbedding(dim=16), torch.randn(2, 4, 32, 16), nn.Linear(16, 48)

    def loss():
        q, k, v = project(x).chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(
            turn.rotate_queries_or_keys(q), turn.rotate_queries_or_keys(k), v).square().mean()

    return training(project, loss)


@of("local-attention")
def windowed_attention():
    from local_attention import LocalAttention

    layer, project, x = LocalAttention(dim=16, window_size=8, causal=True), nn.Linear(16, 48), torch.randn(4, 32, 16)
    return training(project, lambda: layer(*project(x).chunk(3, -1)).square().mean())


@of("performer-pytorch")
def random_features():
    from performer_pytorch import Performer

    model, x = Performer(dim=32, depth=1, heads=2, dim_head=16, nb_features=16), torch.randn(2, 32, 32)
    return training(model, lambda: model(x).square().mean())


@of("perceiver-pytorch")
def perceiver():
    from perceiver_pytorch import Perceiver

    model = Perceiver(input_channels=3, input_axis=1, num_freq_bands=4, max_freq=8.0, depth=2, num_latents=8,
                      latent_dim=16, latent_heads=2, latent_dim_head=8, cross_dim_head=8, num_classes=4)
    x = torch.randn(2, 32, 3)
    return training(model, lambda: model(x).square().mean())


@of("linear-attention-transformer")
def linear_attention():
    from linear_attention_transformer import LinearAttentionTransformerLM

    model = LinearAttentionTransformerLM(num_tokens=TOKENS, dim=32, heads=2, depth=1, max_seq_len=32)
    x = words()
    return training(model, lambda: model(x).square().mean())


@of("reformer-pytorch")
def reversible_layers():
    from reformer_pytorch import Reformer

    model, x = Reformer(dim=32, depth=2, heads=2, bucket_size=8, n_hashes=2), torch.randn(2, 32, 32, requires_grad=True)
    return training(model, lambda: model(x).square().mean())


@of("routing-transformer")
def routed_attention():
    from routing_transformer import RoutingTransformer

    model = RoutingTransformer(dim=32, depth=1, heads=2, window_size=8, max_seq_len=32)
    x = torch.randn(2, 32, 32)
    return training(model, lambda: model(x)[0].square().mean())


@of("product-key-memory")
def key_memory():
    from product_key_memory import PKM

    layer, x = PKM(dim=32, heads=2, num_keys=16, topk=4), torch.randn(2, 16, 32)
    return training(layer, lambda: layer(x).square().mean())


@of("entmax")
def sparse_attention():
    from entmax import entmax15, sparsemax

    net, x = nn.Linear(16, 16), torch.randn(32, 16)
    return training(net, lambda: (entmax15(net(x), -1) * x).sum() + sparsemax(net(x), -1).square().sum())


@of("einops")
def rearranged_attention():
    from einops import einsum, rearrange, reduce

    net, x = nn.Linear(16, 48), torch.randn(4, 16, 16)

    def loss():
        q, k, v = rearrange(net(x), "b n (t h d) -> t b h n d", t=3, h=4)
        weights = (einsum(q, k, "b h i d, b h j d -> b h i j") / 2).softmax(-1)
        out = rearrange(einsum(weights, v, "b h i j, b h j d -> b h i d"), "b h n d -> b n (h d)")
        return reduce(out.square(), "b n d -> b", "mean").sum()

    return training(net, loss)


@of("einx")
def named_axes():
    import einx

    weight, x = torch.randn(16, 8, requires_grad=True), torch.randn(4, 12, 16)
    return training([weight], lambda: einx.mean("a [b c]", einx.dot("a b i, i c -> a b c", x, weight)).square().sum())


@of("g-mlp-pytorch")
def gated_layers():
    from g_mlp_pytorch import gMLP

    model, x = gMLP(num_tokens=TOKENS, dim=32, depth=2, seq_len=32), words()
    return training(model, lambda: model(x).square().mean())
