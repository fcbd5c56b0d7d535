"""Lesson 07's exercises.

All inputs are float32, like the lesson's tensors, because a right answer may contain an identity
matrix or a mask of this type.
"""
