"""Lesson 01's exercises: dot products, other metrics, soft lookup, self-attention."""
