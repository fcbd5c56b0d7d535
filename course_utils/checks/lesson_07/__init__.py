"""Lesson 07's exercises.

All inputs are float32, as the lesson's tensors are: a right answer may hold an identity or a mask
of that type.
"""
