"""Streams: many questions against one threshold, of which only those above it are paid for."""
