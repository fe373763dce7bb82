"""lhotse manifests, features, augmentation, synthetic speech.  Knows lhotse and the model, nothing of searches."""
