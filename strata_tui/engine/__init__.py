"""The engine: llama.cpp as installed, our tiered device under it, and one worker thread. No Textual here."""
