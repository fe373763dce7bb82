"""Errors of `asr` that a user can act on; the command line prints their message and exits with code 2."""

from __future__ import annotations

from rescore.errors import RescoreError


class AsrError(RescoreError):
    """Base: audio, a manifest, a checkpoint or a setting that does not fit."""


class ConfigError(AsrError):
    """A configuration holds an unknown or impossible value."""


class DataError(AsrError):
    """Audio, a manifest or a transcript that cannot be used."""


class CheckpointError(AsrError):
    """A checkpoint is incomplete, or of another configuration than the model."""
