"""The joiner: what encoder and decoder say together of the next token."""

from __future__ import annotations

from torch import Tensor, nn


class Joiner(nn.Module):
    """logits = output(tanh(project_encoder(encoded) + project_decoder(decoded))).

    The projections stand apart from `forward`, so that pruning and search project each frame and each token once.
    """

    def __init__(self, encoder_dim: int, decoder_dim: int, joiner_dim: int, vocab_size: int) -> None:
        super().__init__()
        self.project_encoder = nn.Linear(encoder_dim, joiner_dim)
        self.project_decoder = nn.Linear(decoder_dim, joiner_dim)
        self.output = nn.Linear(joiner_dim, vocab_size)

    def forward(self, encoded: Tensor, decoded: Tensor) -> Tensor:
        """Both projected, `(..., joiner_dim)`, shapes that broadcast -> unnormalised scores `(..., vocab_size)`."""
        return self.output((encoded + decoded).tanh())
