"""Lesson 06b: FlashAttention on a GPU."""
