"""Lesson 01's exercises: dot products, other measures, soft lookup, self-attention."""
