"""English texts that lessons 10b and 12 and their exercises give to the language model."""

# Each text repeats some of its phrases, so induction can help.
REPEATING = [
    "The old lighthouse keeper climbed the stairs every evening. Every evening the old "
    "lighthouse keeper lit the lamp, and every morning he climbed the stairs again and put out "
    "the lamp. One morning the lamp was out before the keeper came.",
    "Mr. Tumbleweed and Mrs. Oakshott met at the market. Mr. Tumbleweed bought onions, and "
    "Mrs. Oakshott bought bread. Mrs. Oakshott asked whether Mr. Tumbleweed liked bread.",
    "To make the dough, mix flour and water. To make the sauce, mix tomatoes and oil. Put the "
    "sauce on the dough, put the cheese on the sauce, and put the pizza in the oven.",
    "def area(width, height): return width * height\n"
    "def volume(width, height, depth): return area(width, height) * depth\n"
    "print(area(3, 4))",
    "The northern pine grows slowly. The southern pine grows quickly. Where the northern pine "
    "grows, the winters are long; where the southern pine grows, the winters are short. The wood "
    "of the northern pine is hard.",
    "Whales breathe air. Fish breathe water. A whale that breathes water drowns, and a fish that "
    "breathes air dies. So whales come up to breathe air, and fish stay down to breathe water.",
]
