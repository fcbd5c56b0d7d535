"""Lesson 10b's exercises. None of them needs the language model's file."""
