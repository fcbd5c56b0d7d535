"""Lesson 12's exercises. None of them needs the language model's file."""
