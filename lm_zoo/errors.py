"""Errors of the LM zoo that a user can act on; the command line prints their message and exits with code 2."""


class LMError(Exception):
    """Base: a model folder, a vocabulary, a text or a setting that does not fit."""


class VocabError(LMError):
    """A vocabulary is malformed, does not fit the weights, or the text is in another case than the LM expects."""


class ModelError(LMError):
    """A model folder or checkpoint is incomplete, or its weights and config disagree."""


class TextError(LMError):
    """Training or test text that cannot be used: missing, empty, damaged."""


class WriteError(LMError):
    """A file or folder that cannot be written: no room, no permission, something else in its place, another run."""
