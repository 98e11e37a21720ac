"""The models on this machine: where they are, what they are, what they would need; and fetching more."""
