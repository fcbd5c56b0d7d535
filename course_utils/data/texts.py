"""English texts that lesson 10b and its exercises give to the language model."""

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

# Each sentence has two endings. With the first one, "it" is the first thing, which is the second
# word of the sentence. With the other one, "it" is the thing before "because".
PRONOUN_PAIRS = """
The ladder did not fit into the shed because it was too long/short
The stone broke the window because it was so heavy/thin
The ball rolled off the table because it was round/tilted
The horse could not pull the cart because it was too tired/heavy
The boat could not pass the bridge because it was too tall/low
The cat did not drink the milk because it was asleep/sour
The knife did not cut the bread because it was blunt/hard
The sun melted the ice because it was so hot/thin
The dog did not catch the car because it was too lazy/fast
The bird dropped the nut because it was too weak/heavy
The table did not go through the door because it was too wide/narrow
The lamp did not light the room because it was too weak/large
The truck crushed the box because it was so heavy/soft
The fish did not eat the worm because it was full/plastic
The coat did not go into the drawer because it was too thick/full
The nail did not go into the wall because it was bent/concrete
The mouse did not eat the cheese because it was afraid/rotten
The rope did not hold the boat because it was too thin/heavy
The train passed the town because it was late/tiny
The bee left the flower because it was tired/empty
""".strip().splitlines()
