"""The suite that every LM passes; `pytest --pyargs lm_zoo.testing --lm NAME` runs it over any.  Knows the registry."""
