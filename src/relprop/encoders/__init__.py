"""Encoders of texts: a Transformer, its pooling and what follows, as one computation that gives an embedding."""

from relprop.encoders.text_encoder import TextEncoder

__all__ = ["TextEncoder"]
