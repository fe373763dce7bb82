"""A recogniser as icefall's own searches ask for one: `beam_search.py` of its recipes, unedited.

    from asr.model.checkpoint import load_model
    from asr.decoding.icefall_model import IcefallModel

    model = IcefallModel(load_model("exp/model")[0])
    encoder_out, encoder_out_lens = model.forward_encoder(features, feature_lens)
    tokens = beam_search.modified_beam_search(model, encoder_out, encoder_out_lens, beam=4)

icefall gives the decoder the last `context_size` tokens of each hypothesis.  What stands before the begin, a blank, is
-1 in its scripts since 2023, and a blank in those of before and in k2's contexts.

Read were, of k2-fsa/icefall, egs/librispeech/ASR at commit 36e0420c: pruned_transducer_stateless2/beam_search.py and
zipformer/decode.py, decoder.py, joiner.py and model.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from asr.errors import ConfigError
from asr.model.decoder import StatelessDecoder
from asr.model.joiner import Joiner
from asr.model.rnnt_loss import BLANK

if TYPE_CHECKING:
    from asr.model.transducer import Transducer


class IcefallModel(nn.Module):
    """A Transducer with the parts and calls of icefall's; it shares its weights.

    Attributes:
      encoder: `(features, lengths)` -> encoded frames `(N, T, encoder_dim)`, lengths `(N,)`.
      decoder, joiner: see IcefallDecoder, IcefallJoiner.
    """

    def __init__(self, model: Transducer) -> None:
        """
        Raises:
          ConfigError: the prediction network is an LSTM, which icefall's searches cannot ask.
        """
        super().__init__()
        if not isinstance(model.decoder, StatelessDecoder):
            raise ConfigError(
                'icefall\'s searches need a stateless decoder, found lstm; train with "decoder": "stateless", or use '
                "asr decode"
            )
        self.encoder = model.encoder
        self.decoder = IcefallDecoder(model.decoder)
        self.joiner = IcefallJoiner(model.joiner)
        self.train(model.training)

    def forward_encoder(self, x: Tensor, x_lens: Tensor) -> tuple[Tensor, Tensor]:
        """Features float `(N, T, F)`, int64 `(N,)` -> encoded frames `(N, T', encoder_dim)`, int64 `(N,)`."""
        encoded, lengths = self.encoder(x, x_lens)
        return encoded, lengths


class IcefallDecoder(nn.Module):
    """The stateless prediction network.

    Attributes:
      blank_id, context_size, vocab_size: what icefall's searches read.
    """

    def __init__(self, decoder: StatelessDecoder) -> None:
        super().__init__()
        self.stateless = decoder
        self.blank_id, self.context_size = BLANK, decoder.context_size
        self.vocab_size = decoder.embedding.num_embeddings

    def forward(self, y: Tensor, need_pad: bool = True) -> Tensor:
        """Tokens int64 `(N, U)`, the begin (a blank) first or cut off -> float `(N, U, decoder_dim)`.

        Args:
          need_pad: False: `y` `(N, context_size)` are the last tokens, and what follows is `(N, 1, decoder_dim)`.
        """
        if need_pad:
            y = torch.cat([self.stateless.initial(len(y), y.device), y], dim=1)
        return self.stateless.windows(_begun_once(y.long()))


class IcefallJoiner(nn.Module):
    """The joiner, by icefall's names of its parts."""

    def __init__(self, joiner: Joiner) -> None:
        super().__init__()
        self.encoder_proj, self.decoder_proj = joiner.project_encoder, joiner.project_decoder
        self.output_linear = joiner.output

    def forward(self, encoder_out: Tensor, decoder_out: Tensor, project_input: bool = True) -> Tensor:
        """Shapes that broadcast, `(..., dim)` -> unnormalised scores `(..., vocab_size)`.

        Args:
          project_input: False: both are projected already, `(..., joiner_dim)`.
        """
        if project_input:
            encoder_out, decoder_out = self.encoder_proj(encoder_out), self.decoder_proj(decoder_out)
        return self.output_linear((encoder_out + decoder_out).tanh())


def _begun_once(tokens: Tensor) -> Tensor:
    """Of the blanks at the start of each row, the last is the begin and those before it become -1, nothing."""
    blanks = (tokens <= BLANK).long().cumprod(dim=1)
    begins = blanks * (blanks.flip(1).cumsum(1).flip(1) > 1)
    return torch.where(begins.bool(), torch.full_like(tokens, -1), tokens)
