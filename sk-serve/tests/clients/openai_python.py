"""openai-python against a server: plain, streamed and asynchronous, with what is ours in `extra_body`."""

import asyncio
import sys

import openai

URL = sys.argv[1]
MODEL = "swiss-knife"
ASKED = [{"role": "user", "content": "How do I clean my bicycle?"}]
HELPFUL = {"swiss_knife": {"weights": {"helpful": 1}, "explain": True}}

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none")

models = [model.id for model in client.models.list()]
assert MODEL in models and f"{MODEL}:best-of-n" in models, models

whole = client.chat.completions.create(model=MODEL, messages=ASKED, seed=7, extra_body=HELPFUL)
text = whole.choices[0].message.content
assert text and whole.usage.completion_tokens > 0
assert whole.usage.swiss_knife["steps"] == len(whole.choices[0].swiss_knife["steps"])

stream = client.chat.completions.create(
    model=MODEL, messages=ASKED, seed=7, stream=True, stream_options={"include_usage": True}, extra_body=HELPFUL
)
chunks = list(stream)
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
assert all("usage" in chunk.model_fields_set and chunk.usage is None for chunk in chunks[:-1])
assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage.model_copy(update={"swiss_knife": chunks[-1].usage.swiss_knife})
steps = [chunk.swiss_knife["step"] for chunk in chunks if getattr(chunk, "swiss_knife", None)]
assert all(step["weights"] == {"helpful": 1.0} for step in steps), steps

completed = client.completions.create(model=MODEL, prompt="The capital", max_tokens=1, echo=True, logprobs=1)
assert completed.choices[0].text.startswith("The capital")
assert completed.choices[0].logprobs.token_logprobs[0] is None

scored = client.chat.completions.create(model=MODEL, messages=ASKED, max_tokens=5, logprobs=True, top_logprobs=2)
assert len(scored.choices[0].logprobs.content) == scored.usage.completion_tokens

for wrong, kind in [
    ({"extra_body": {"swiss_knife": {"weights": {"kind": 1}}}}, openai.BadRequestError),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, openai.BadRequestError),
    ({"model": "gpt-5"}, openai.NotFoundError),
]:
    try:
        client.chat.completions.create(**{"model": MODEL, "messages": ASKED, **wrong})
    except kind as error:
        assert error.body["message"], error
    else:
        raise AssertionError(f"{wrong} is not refused")


async def side_by_side():
    """Answers that are written side by side are those that each is alone."""
    client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="none")

    async def one(seed):
        stream = await client.chat.completions.create(model=MODEL, messages=ASKED, seed=seed, stream=True, extra_body=HELPFUL)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    return await asyncio.gather(*(one(seed) for seed in range(5, 9)))


answers = asyncio.run(side_by_side())
assert answers[2] == text, answers
print("openai-python", openai.__version__)
