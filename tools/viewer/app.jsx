// The page: which of the files is shown, whether it has changed since, and h5web below.
import '@h5web/app/styles.css';
import './app.css';

import { App, H5GroveProvider } from '@h5web/app';
import { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';

// The token is a part of the path: every address below it carries the token along.
const BASE = new URL('.', location.href).href.replace(/\/$/, '');
const SECONDS = 5;

async function fetched(address) {
  const reply = await fetch(`${BASE}/${address}`);
  const content = await reply.json();
  if (!reply.ok) throw new Error(content.message);
  return content;
}

function Page({ names }) {
  const [name, setName] = useState(names[0]);
  const [shown, setShown] = useState();
  const [current, setCurrent] = useState();
  const [trouble, setTrouble] = useState('');
  const [start, setStart] = useState();

  function choose(next) {
    setName(next);
    setShown(undefined);
    setCurrent(undefined);
    setStart(undefined);
  }

  // h5web begins anew, at the object that was shown.
  function showChanged() {
    setStart(document.querySelector('[role=treeitem][aria-selected=true]')?.dataset.path);
    setShown(current);
  }

  useEffect(() => {
    let left = false;
    async function ask() {
      try {
        const state = await fetched(`state?file=${encodeURIComponent(name)}`);
        if (left) return;
        setShown((before) => before ?? state);
        setCurrent(state);
        setTrouble('');
      } catch (error) {
        if (!left) setTrouble(error instanceof TypeError ? 'pnc-vol view has ended.' : error.message);
      }
    }
    ask();
    const timer = setInterval(() => document.hidden || ask(), SECONDS * 1000);
    return () => {
      left = true;
      clearInterval(timer);
    };
  }, [name]);

  const changed = shown && current && shown.version !== current.version;
  return (
    <>
      {(names.length > 1 || changed || trouble || current?.notice) && (
        <div id="files">
          {names.length > 1 && (
            <select aria-label="File" value={name} onChange={(event) => choose(event.target.value)}>
              {names.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          )}
          {changed && (
            <button type="button" onClick={showChanged}>
              The file has changed: show what is in it now
            </button>
          )}
          {current?.notice && <span role="alert">{current.notice}</span>}
          {trouble && <span role="alert">{trouble}</span>}
        </div>
      )}
      <div id="viewer">
        {shown && (
          <H5GroveProvider key={`${name} ${shown.version}`} url={BASE} filepath={name}>
            <App initialPath={start ?? shown.first} />
          </H5GroveProvider>
        )}
      </div>
    </>
  );
}

const root = createRoot(document.querySelector('#root'));
fetched('files')
  .then((names) => root.render(<Page names={names} />))
  .catch((error) => root.render(<p role="alert">{error.message}</p>));
