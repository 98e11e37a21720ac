"""The loaded model for other programs on this machine: a small part of OpenAI's HTTP interface."""
