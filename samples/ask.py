"""Ask both models something. Start `workerctl dev` in another terminal first."""

from tenantry import AI

with AI() as ai:
    for model in ("kimi-k2.6", "glm-5.2"):
        answer = ai.run(model, {"prompt": "Reverse the word stone."})
        print(f"{model}: {answer.text}")
        print(f"  {answer.usage.prompt_tokens} tokens in, {answer.usage.completion_tokens} out")
