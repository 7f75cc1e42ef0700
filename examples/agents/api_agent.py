"""A model behind an API as an agent: one request in, one answer out. Install the SDK of the one that you choose.

export ANTHROPIC_API_KEY=...   (or OPENAI_API_KEY, GEMINI_API_KEY)
tritonforge-mcp optimize baseline.py --task task.py --agent "python api_agent.py anthropic MODEL" --rounds 8
"""

import json
import sys

provider, model = sys.argv[1:]
request = json.load(sys.stdin)
rules, content = request.pop("instructions"), json.dumps(request, indent=1)
if provider == "anthropic":
    import anthropic

    client = anthropic.Anthropic()
    with client.messages.stream(
        model=model, max_tokens=32000, system=rules, messages=[{"role": "user", "content": content}]
    ) as stream:
        text = stream.get_final_text()
elif provider == "openai":
    import openai

    text = openai.OpenAI().responses.create(model=model, instructions=rules, input=content).output_text
elif provider == "google":
    from google import genai

    config = genai.types.GenerateContentConfig(system_instruction=rules)
    text = genai.Client().models.generate_content(model=model, contents=content, config=config).text
else:
    sys.exit(f"there is no provider {provider}: anthropic, openai or google")
# Models like to put a fence, or a sentence, around their answer.
sys.stdout.write(text[text.index("{") : text.rindex("}") + 1])
